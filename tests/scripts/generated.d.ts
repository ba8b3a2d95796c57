// Modules that the server makes: colour maps, the views' names, and the words of a language.
declare module '*/colormaps.js' {
  const encoded: Record<string, string>;
  export default encoded;
}
declare module '*/views.js' {
  const names: string[];
  export default names;
}
interface Window {
  vitviz: { views: Set<any>; memory: Record<string, any> };
}
