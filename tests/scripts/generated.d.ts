// Written by `python -m tests.scripts.write_types` from the Python declarations.

interface Translatable {
  text: string;
  values: Record<string, any>;
}
type Sentence = string | Translatable;
interface Series {
  x: number[];
  y: (number | null)[];
  name: Sentence;
  colour: string;
  line: boolean;
  dots: boolean;
  band: [number[], number[]] | null;
  dash: string;
  thick: number;
  of: Record<string, number[]>;
  said: Sentence[];
  told: Sentence[];
  also: Record<string, any[]>;
  key: string;
}
interface Bars {
  x: number[];
  low: number[];
  high: number[];
  colours: string[];
  width: number;
  of: Record<string, number[]>;
  said: Sentence[];
  told: Sentence[];
  also: Record<string, any[]>;
}
interface ReferenceLine {
  value: number;
  name: Sentence;
  upright: boolean;
  colour: string;
  beyond: Sentence;
}
interface Chart {
  x_label: Sentence;
  y_label: Sentence;
  x: [number, number];
  y: [number, number];
  title: Sentence;
  series: Series[];
  bars: Bars | null;
  levels: ReferenceLine[];
  whole: boolean;
  percent: boolean;
  aspect: number;
  ticks: [number, Sentence][];
  named: [string, Sentence][];
  y_ticks: [number, Sentence][];
  keyed: boolean;
  square: boolean;
  question: string;
  unit: Sentence;
  notes: Sentence[];
}
interface Scale {
  colours: string;
  low: number;
  high: number;
  label: Sentence;
}
interface Matrix {
  values: (number | null)[][];
  scale: Scale;
  x_label: Sentence;
  y_label: Sentence;
  title: Sentence;
  chosen: number | null;
  step: number;
  rows: Sentence[];
  cols: Sentence[];
  told: Translatable[];
  column: number | null;
  question: string;
  unscaled: boolean;
  notes: Sentence[];
}
interface ViewSettings {
  tour: { step: number; token: number; layer: number; head: number; keys: string; number: number; seed: number };
  patches: { form: string; gap: number };
  filters: { kind: string; component: number; filter: number };
  positions: { form: string; scale: string };
  explorer: { layer: number; head: number; show: string; direction: string; order: string; scale: string; token: number; pins: string; beside: string; key: string; against: string; difference: string };
  distance: { form: string; rows: string; difference: string };
  rollout: { query: string; fusion: string; discard: number; residual: number; layers: string; overlay: string; opacity: number; colormap: string; scale: string; smooth: string; alone: number; difference: string };
  tokens: { show: string; depth: number; norm: string; mean: string; basis: string; tint: string; k: number; mark: string; measure: string; alike: string; opacity: number; token: number; pins: string; other: string; partner: number; difference: string };
  compared: { tokens: string; against: string; curve: string; frame: number };
  evidence: { target: string; relative: string; method: string; show: string; patchwise: string; least: number; paths: number; depth: number; part: string; layer: number; chosen: string; trail: string; beside: string; into: string; parts_as: string; writer: string; until: number; tried: number; patches: string; difference: string };
  trial: { target: string; patches_as: string; score: string; show: string; scale: string; steps: string; method: string };
  experiment: { kind: string; score: string; step: number; draw: number; known: number };
}
interface ViewItems {
  tour: 'embedded' | 'front' | 'filter' | 'keys' | 'worked' | 'heads' | 'answer' | 'sum' | 'without' | 'path' | 'experiment' | 'chart';
  patches: 'norms';
  filters: 'components' | 'variance' | 'raw' | 'norms' | 'response' | 'chart';
  positions: 'similarity';
  explorer: 'layer' | 'line' | 'pinned' | 'wall' | 'wallmax' | 'distances' | 'entropy' | 'rollout' | 'opening' | 'contributions' | 'score';
  distance: 'distance' | 'prefix_mass' | 'uniform' | 'chart';
  rollout: 'map' | 'layers';
  tokens: 'cosines' | 'line' | 'pinned' | 'by_depth' | 'similarity' | 'across' | 'facing' | 'photo' | 'tints' | 'other_tints' | 'components' | 'shares' | 'norms' | 'usual' | 'largest' | 'typical' | 'received' | 'sinks' | 'entropy' | 'prefix_entropy' | 'cosine' | 'divergence' | 'matrices' | 'chart';
  compared: 'cka' | 'error' | 'matrix' | 'steps' | 'looked' | 'curves' | 'chart';
  evidence: 'map' | 'explained' | 'heads' | 'mlps' | 'biases' | 'lines' | 'sources' | 'forming' | 'share' | 'own' | 'best' | 'effects' | 'direct' | 'agreement' | 'writer_map' | 'writer_heads' | 'truth' | 'trail' | 'likeliest' | 'legend' | 'classes' | 'change' | 'labels' | 'chart';
  trial: 'classes' | 'tried' | 'panels' | 'verdict' | 'agreement' | 'standing' | 'chart';
  experiment: 'probability' | 'kept' | 'value' | 'steps' | 'orders' | 'point' | 'plan' | 'shown' | 'chart';
}
