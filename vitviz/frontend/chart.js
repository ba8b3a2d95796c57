// What both renderers of a chart share (`svg_chart.js`, `plotly_chart.js`): texts, colours, ticks, space, and
// pointer, touch and keyboard support. `vitviz/charts/chart.py` describes a chart.

import { div, el, say, sheet, span, stack, svg } from './elements.js';
import { headKey, light, relit } from './highlight.js';
import { t } from './i18n.js';
import { besides, letters } from './line_labels.js';
import { number, ticks } from './numbers.js';
import { follow, operated, ringed } from './pointer.js';
import { still } from './shared_scale.js';

/** Colours with a light and a dark variant on the page; all others are legible on both. */
export const INKS = { '#2f7fc0': 'var(--vv-blue)', '#c46a16': 'var(--vv-orange)', '#7d838e': 'currentColor' };
export const DASHES = { dashed: '6 4', dotted: '2 3', 'dash-dotted': '6 3 2 3' };
const LETTER = 7; // px, average width of a letter
/** Names of marks, by the axes that a mark belongs to. */
const MARKS = {
  'layer head': (of) => t('Layer {layer}, head {head}', of),
  layer: (of) => t('Layer {layer}', of),
  depth: (of) => t('Depth {depth}', of),
};

export const ink = (colour) => INKS[colour] ?? colour;
/** SVG attributes of a line. */
export const stroked = ({ colour, dash }) => ({ stroke: ink(colour), 'stroke-dasharray': DASHES[dash] });
const said = (value, percent) => (percent ? `${number(100 * value)} %` : number(value));

/**
 * Tooltip lines of point `i` of a series or of bars.
 * @type {(chart: Chart, one: Series | Bars, i: number) => string[]}
 */
export const told = (chart, one, i) => {
  const of = nth(one.of, i);
  const value = 'y' in one ? Number(one.y[i]) : one.high[i] - one.low[i];
  const unit = chart.percent ? ' %' : chart.unit && ` ${chart.unit}`;
  const head = one.said.length ? t(one.said[i]) : number((chart.percent ? 100 : 1) * value, 4) + unit;
  const name = MARKS[Object.keys(of).join(' ')]?.(of);
  const lines = one.told.map((line) => {
    const { text, values } = typeof line === 'string' ? { text: line, values: {} } : line;
    return t(text, { ...values, ...of, ...nth(one.also, i) });
  });
  return [head, name, ...lines].filter(Boolean);
};

const nth = (of, i) => Object.fromEntries(Object.entries(of).map(([name, all]) => [name, all[i]]));

/** Selects what a point belongs to: with the settings of this view, else by opening the point's head. */
function picking(self, values) {
  const own = Object.keys(values).filter((name) => self.control(name));
  if (own.length) return () => own.forEach((name) => self.set(name, values[name]));
  return values.head ? () => self.open?.('explorer', { ...values, show: 'head' }) : undefined;
}

/** An entry of the legend: a line, a dot or a square, and a name. */
export function entry(/** @type {LegendEntry} */ { name, colour, line, dots, square, dash }) {
  const mark = svg('svg', { width: 22, height: 12, 'aria-hidden': 'true' });
  const across = { x1: 1, x2: 21, y1: 6, y2: 6, 'stroke-width': 2 };
  if (line) mark.append(svg('line', { ...across, ...stroked({ colour, dash }) }));
  if (dots) mark.append(svg('circle', { cx: 11, cy: 6, r: 4, fill: ink(colour) }));
  if (square) mark.append(svg('rect', { x: 6, y: 1, width: 10, height: 10, fill: ink(colour) }));
  return el('span', { class: 'vv-legend' }, mark, span(t(name)));
}

/** What the legend names; of more than 12 series every fourth. @type {(chart: Chart) => LegendEntry[]} */
function legendOf({ series, named, levels, keyed, x, y }) {
  const found = keyed ? [] : series.filter((one) => one.name);
  const shown = found.filter(
    (_, i) => found.length <= 12 || i === 0 || i === found.length - 1 || (i + 1) % 4 === 0,
  );
  const within = (/** @type {ReferenceLine} */ { value, upright }) => {
    const [low, high] = upright ? x : y;
    return low <= value && value <= high;
  };
  return [
    ...shown,
    ...named.map(([colour, name]) => ({ name, colour, square: true })),
    ...levels
      .map((one) => ({ ...one, name: within(one) ? one.name : one.beyond, line: true, dash: 'dashed' }))
      .filter(({ name }) => name),
  ];
}

/** The names of both axes, for screen readers. */
export const axesOf = (/** @type {Chart | Matrix} */ { x_label, y_label }) =>
  [t(y_label), t(x_label)].filter(Boolean).join(', ');

/** Axis ticks: [position, label] with names, integers or round numbers. */
function places(names, range, { whole = false, percent = false, count }) {
  if (names.length) return names.map(([at, name]) => [at, t(name)]);
  const [low, high] = range;
  const first = Math.ceil(low);
  const numbers = whole
    ? Array.from({ length: Math.floor(high) - first + 1 }, (_, i) => first + i)
    : ticks(low, high, count);
  return numbers.map((at) => [at, whole ? String(at) : said(at, percent)]);
}

/** The y range, extended by everything drawn before and by the neighbouring figures. */
function ranged(self, /** @type {Chart} */ { x_label, y_label, y, question }) {
  self.reach = still(self, [question, t(x_label), t(y_label)].join(), y[0], y[1]);
  const all = [self, ...self.beside()].map((one) => one.reach).filter(Boolean);
  /** @type {[number, number]} */
  const range = [Math.min(...all.map(([low]) => low)), Math.max(...all.map(([, high]) => high))];
  for (const other of self.beside())
    if (other.scale && String(other.scale) !== String(range)) requestAnimationFrame(() => other.draw());
  self.scale = range;
  return range;
}

/** A text in two lines of similar length, broken at a space. */
function halves(text) {
  const spaces = [...text.matchAll(/ /g)].map(({ index }) => index);
  const away = (at) => Math.abs(at - text.length / 2);
  const at = spaces.reduce((best, one) => (away(one) < away(best) ? one : best), 0);
  return at ? [text.slice(0, at), text.slice(at + 1)] : [text];
}

/** Every how many ticks of the x axis are labelled, each `broad` px wide; `pitch` is the distance of two. */
function skipped(named, count, broad, pitch) {
  const fewest = Math.max(1, Math.ceil(broad / pitch));
  const steps = Array.from({ length: fewest + 1 }, (_, i) => fewest + i);
  // the last named tick is labelled too, if that skips at most as many again
  return (named && steps.find((one) => (count - 1) % one === 0)) || fewest;
}

let pen = /** @type {CanvasRenderingContext2D | null} */ (null);

/** Width in px of the name of an axis. */
function axisWidth(self, text) {
  pen ??= /** @type {CanvasRenderingContext2D} */ (sheet(1, 1).getContext('2d'));
  pen.font = `${13.5 * self.zoom}px ${self.colour('font-family')}`;
  return pen.measureText(text).width;
}

/**
 * The space of a chart of this size over the ranges x and y; sizes at zoom 1 are multiplied by the zoom.
 * `up` and `along` are the ticks, `label` the lines of the x axis's name, centred at `middle` and scaled by
 * `fits`.
 */
export function spaceOf(self, /** @type {Chart} */ figure, width, height, { x, y }) {
  const { zoom } = self;
  const up = places(figure.y_ticks, y, { percent: figure.percent, count: 5 });
  const longest = Math.max(...up.map(([, name]) => name.length));
  const wide = Math.min((figure.y_label ? 36 : 20) + LETTER * longest, width * 0.45);
  const left = Math.max(figure.y_label ? 58 : 46, wide) * zoom;
  const lines = figure.series.filter(({ key }) => key);
  const beside = figure.keyed && width >= 380 * zoom ? besides(lines) : 16; // names of the lines
  const measured = (texts) => Math.max(...texts.map((text) => axisWidth(self, text)));
  const whole = t(figure.x_label);
  const label = measured([whole]) > 1.1 * width ? halves(whole) : [whole];
  const foot = (label.length > 1 ? 60 : label[0] ? 46 : 26) * zoom;
  const [right, top, low] = [width - beside * zoom, 14 * zoom, height - foot];
  const ticks = places(figure.ticks, x, { whole: figure.whole, count: 6 });
  const seen = ticks.filter(([at]) => x[0] <= at && at <= x[1]);
  const step = seen.length > 1 ? seen[1][0] - seen[0][0] : 1;
  const broad = Math.max(26, 9 * letters(seen.map(([, name]) => name))) * zoom;
  const every = skipped(figure.ticks.length, seen.length, broad, (step * (right - left)) / (x[1] - x[0]));
  const along = seen.filter((_, i) => i % every === 0);
  const wanted = measured(label);
  const fits = Math.min(1, (width - 4) / (wanted || 1));
  const half = (fits * wanted) / 2;
  const middle = Math.max(half, Math.min(width - half, (left + right) / 2));
  return { left, right, top, low, foot, up, along, lines, named: beside > 16, label, middle, fits };
}

/**
 * Title, plot, legend and notes of a chart. A click passes `pick` the indices that a mark belongs to, or the
 * key of its line; without `pick`, the click selects the mark's layer or head.
 */
export function chartFrame(self, plot, pick) {
  const title = el('p', { class: 'vv-h' });
  const legend = el('p', { class: 'vv-legends' });
  const notes = el('p', { class: 'vv-text', hidden: true });
  const node = stack(title, div('vv-plot', plot), legend, notes);
  const { ring, mark } = ringed();
  let points = [];
  let jump = 1; // marks per line
  const under = follow(self, plot, {
    points: () => points,
    mark(point) {
      mark(point);
      light(point?.key);
    },
    rows: () => ({ ArrowUp: jump > 1 ? -jump : 1, ArrowDown: jump > 1 ? jump : -1 }),
  });

  /** Sets the texts of a chart; returns the chart over its shared range, its size, and its legend. */
  function begin(/** @type {Chart} */ given) {
    const y = ranged(self, given);
    const figure = { ...given, y, x: given.square ? y : given.x };
    const width = Math.max(150, self.width);
    const height = Math.max(120, Math.round(self.tall)); // the page may not be laid out yet
    const least = height - (figure.x_label ? 60 : 40) * self.zoom;
    const upright = axisWidth(self, t(figure.y_label)) < least; // else above the chart
    title.textContent = [t(figure.title), upright ? '' : t(figure.y_label)].filter(Boolean).join(' · ');
    title.hidden = !figure.series.length && !figure.bars;
    plot.parentElement.hidden = title.hidden;
    plot.setAttribute('role', 'application'); // from the first drawing on, which gives it its name
    plot.setAttribute('aria-label', operated(t(figure.title), axesOf(figure)));
    say(notes, figure.notes.map((one) => t(one)).join(' '));
    return { figure, width, height, upright, entries: legendOf(figure) };
  }

  /** Forgets the points of the last drawing; `lines` are those with a key. */
  function restart(lines) {
    points = [];
    jump = lines[0]?.x.length ?? 1;
  }

  /** Adds point `i` of a series or of bars; returns its highlight key. */
  function point(figure, one, i, left, top) {
    const of = nth(one.of, i);
    const key = one.key || of.lit || headKey(of);
    const act = pick ? () => pick(one.key || of) : picking(self, of);
    points.push({ left, top, key, told: () => told(figure, one, i), pick: act });
    return key || undefined;
  }

  /** After the drawing. */
  function end() {
    mark(null);
    relit(plot);
    under.forget();
  }
  return { node, legend, ring, begin, restart, point, end };
}

/** A chart beside a view's figure, with its own size: `draw(chart, width, tall)`. `make` draws it. */
export function beside(make, self, options) {
  const side = Object.create(self);
  const { draw, ...drawn } = make(side, options);
  const sized = (figure, width, tall) => {
    Object.assign(side, { width, tall });
    draw(figure);
  };
  return { ...drawn, draw: sized };
}
