// Modules that the server makes: colour maps, the views' names, and the words of a language.
declare module '*/colormaps.js' {
  const encoded: Record<string, string>;
  export default encoded;
}
declare module '*/plotly_address.js' {
  const address: string;
  export default address;
}
declare module '*/views.js' {
  const names: string[];
  export default names;
}
interface Window {
  Plotly: any;
  vitviz: { views: Set<any>; memory: Record<string, any> };
}
// What scripts add to a chart or a matrix before they draw it.
interface Series {
  muted?: boolean;
}
interface Chart {
  chosen?: string;
}
interface Matrix {
  removed?: number[];
}
interface LegendEntry {
  name: Sentence;
  colour: string;
  line?: boolean;
  dots?: boolean;
  square?: boolean;
  dash?: string;
  x?: number[];
}
