// A chart as described by `vitviz/charts/chart.py`: dots, lines, bars and bands over fixed axis ranges, with
// pointer, touch and keyboard support. Views with a chart and no script of their own use only this module.

import { div, el, say, span, stack, svg } from './elements.js';
import { headKey, light, relit } from './highlight.js';
import { t } from './i18n.js';
import { besides, ends, letters } from './line_labels.js';
import { number, ticks } from './numbers.js';
import { follow, operated, ringed } from './pointer.js';
import { still } from './shared_scale.js';

/** Colours with a light and a dark variant on the page; all others are legible on both. */
export const INKS = { '#2f7fc0': 'var(--vv-blue)', '#c46a16': 'var(--vv-orange)', '#7d838e': 'currentColor' };
const DASHES = { dashed: '6 4', dotted: '2 3', 'dash-dotted': '6 3 2 3' };
const LETTER = 7; // px, average width of a letter
/** Names of marks, by the axes that a mark belongs to. */
const MARKS = {
  'layer head': (of) => t('Layer {layer}, head {head}', of),
  layer: (of) => t('Layer {layer}', of),
  depth: (of) => t('Depth {depth}', of),
};

const ink = (colour) => INKS[colour] ?? colour;
/** SVG attributes of a line. */
export const stroked = ({ colour, dash }) => ({ stroke: ink(colour), 'stroke-dasharray': DASHES[dash] });
const said = (value, percent) => (percent ? `${number(100 * value)} %` : number(value));

/** Tooltip lines of point `i` of a series or of bars. */
export function told(chart, one, i) {
  const of = nth(one.of, i);
  const value = one.y ? one.y[i] : one.high[i] - one.low[i];
  const unit = chart.percent ? ' %' : chart.unit && ` ${chart.unit}`;
  const head = one.said.length ? t(one.said[i]) : number((chart.percent ? 100 : 1) * value, 4) + unit;
  const name = MARKS[Object.keys(of).join(' ')]?.(of);
  const lines = one.told.map((line) => t(line.text ?? line, { ...line.values, ...of, ...nth(one.also, i) }));
  return [head, name, ...lines].filter(Boolean);
}

export const nth = (of, i) => Object.fromEntries(Object.entries(of).map(([name, all]) => [name, all[i]]));

/** Selects what a point belongs to: with the settings of this view, else by opening the point's head. */
export function picking(self, values) {
  const own = Object.keys(values).filter((name) => self.control(name));
  if (own.length) return () => own.forEach((name) => self.set(name, values[name]));
  return values.head ? () => self.open?.('explorer', { ...values, show: 'head' }) : undefined;
}

/** An entry of the legend: a line, a dot or a square, and a name. */
export function entry({ name, colour, line, dots, square, dash }) {
  const mark = svg('svg', { width: 22, height: 12, 'aria-hidden': 'true' });
  const across = { x1: 1, x2: 21, y1: 6, y2: 6, 'stroke-width': 2 };
  if (line) mark.append(svg('line', { ...across, ...stroked({ colour, dash }) }));
  if (dots) mark.append(svg('circle', { cx: 11, cy: 6, r: 4, fill: ink(colour) }));
  if (square) mark.append(svg('rect', { x: 6, y: 1, width: 10, height: 10, fill: ink(colour) }));
  return el('span', { class: 'vv-legend' }, mark, span(t(name)));
}

/** What the legend names; of more than 12 series every fourth. */
export function legendOf({ series, named, levels, keyed, x, y }) {
  const found = keyed ? [] : series.filter((one) => one.name);
  const shown = found.filter(
    (_, i) => found.length <= 12 || i === 0 || i === found.length - 1 || (i + 1) % 4 === 0,
  );
  const within = ({ value, upright }) => {
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
export const axesOf = ({ x_label, y_label }) => [t(y_label), t(x_label)].filter(Boolean).join(', ');

/** Axis ticks: [position, label] with names, integers or round numbers. */
export function places(names, range, { whole = false, percent = false, count }) {
  if (names.length) return names.map(([at, name]) => [at, t(name)]);
  const [low, high] = range;
  const first = Math.ceil(low);
  const numbers = whole
    ? Array.from({ length: Math.floor(high) - first + 1 }, (_, i) => first + i)
    : ticks(low, high, count);
  return numbers.map((at) => [at, whole ? String(at) : said(at, percent)]);
}

/** The y range, extended by everything drawn before and by the neighbouring figures. */
export function ranged(self, { x_label, y_label, y, question }) {
  self.reach = still(self, [question, t(x_label), t(y_label)].join(), y[0], y[1]);
  const all = [self, ...self.beside()].map((one) => one.reach).filter(Boolean);
  const range = [Math.min(...all.map(([low]) => low)), Math.max(...all.map(([, high]) => high))];
  for (const other of self.beside())
    if (other.scale && String(other.scale) !== String(range)) requestAnimationFrame(() => other.draw());
  self.scale = range;
  return range;
}

/**
 * Makes a chart. `draw(chart)` draws a view's item "chart" in the available space. The y range only grows
 * across the frames of a video and is shared by two figures of the same view. A click passes `pick` the
 * indices that a mark belongs to, or the key of its line; without `pick`, the click selects the mark's layer
 * or head.
 */
export function chart(self, { pick = null } = {}) {
  const title = el('p', { class: 'vv-h' });
  const legend = el('p', { class: 'vv-legends' });
  const notes = el('p', { class: 'vv-text', hidden: true });
  const plot = svg('svg', { class: 'vv-chart', role: 'application', tabindex: 0 });
  const node = stack(title, div('vv-plot', plot), legend, notes);
  let points = [];
  let reached = (px) => px;
  let level = (px) => px; // value on the y axis at a height
  let jump = 1; // marks per line
  const { ring, mark } = ringed();
  const under = follow(self, plot, {
    points: () => points,
    mark(point) {
      mark(point);
      light(point?.key);
    },
    rows: () => ({ ArrowUp: jump > 1 ? -jump : 1, ArrowDown: jump > 1 ? jump : -1 }),
  });

  function draw(given) {
    const range = ranged(self, given);
    const figure = given.square ? { ...given, x: range } : given;
    const size = self.zoom;
    const width = Math.max(150, self.width);
    const height = Math.max(120, Math.round(self.tall)); // the page may not be laid out yet
    const up = places(figure.y_ticks, range, { percent: figure.percent, count: 5 });
    const longest = Math.max(...up.map(([, name]) => name.length));
    const wide = Math.min((figure.y_label ? 28 : 16) + LETTER * longest, width * 0.45);
    const left = Math.max(figure.y_label ? 58 : 46, wide) * size;
    const lines = figure.series.filter(({ key }) => key);
    const beside = figure.keyed && width >= 380 * size ? besides(lines) : 16;
    const [right, top, low] = [width - beside * size, 14 * size, height - (figure.x_label ? 46 : 26) * size];
    const x = (at) => left + ((at - figure.x[0]) / (figure.x[1] - figure.x[0])) * (right - left);
    reached = (px) => figure.x[0] + ((px - left) / (right - left)) * (figure.x[1] - figure.x[0]);
    const y = (at) => low - ((at - range[0]) / (range[1] - range[0])) * (low - top);
    level = (px) => range[0] + ((low - px) / (low - top)) * (range[1] - range[0]);
    const text = (attributes, said) => svg('text', { 'text-anchor': 'middle', ...attributes }, said);
    const line = (attributes, from, to) =>
      svg('line', { ...attributes, x1: from[0], y1: from[1], x2: to[0], y2: to[1] });
    const along = places(figure.ticks, figure.x, { whole: figure.whole, count: 6 });
    const pitch = (x(figure.x[1]) - x(figure.x[0])) / ((figure.x[1] - figure.x[0]) / apart(along));
    const broad = Math.max(26, 9 * letters(along.map(([, name]) => name)));
    const fewest = Math.max(1, Math.ceil((broad * size) / pitch));
    const steps = Array.from({ length: fewest + 1 }, (_, i) => fewest + i);
    // the last named tick is labelled too, if that skips at most as many again
    const every = (figure.ticks.length && steps.find((one) => (along.length - 1) % one === 0)) || fewest;
    const parts = [
      ...up.flatMap(([at, name]) => [
        line({ class: 'vv-grid' }, [left, y(at)], [right, y(at)]),
        text({ x: left - 8, y: y(at) + 4, 'text-anchor': 'end' }, name),
      ]),
      ...along
        .filter((_, i) => i % every === 0)
        .map(([at, name]) => text({ x: x(at), y: low + 18 * size }, name)),
    ];
    const wanted = (LETTER + 0.5) * size * letters([t(figure.x_label)]);
    const half = Math.min(wanted, width) / 2;
    const x0 = Math.max(half, Math.min(width - half, (left + right) / 2));
    const tight = wanted > width ? { textLength: width - 4, lengthAdjust: 'spacingAndGlyphs' } : {};
    parts.push(text({ class: 'vv-axis', x: x0, y: height - 6, ...tight }, t(figure.x_label)));
    const least = 2 * Math.min((top + low) / 2, height - (top + low) / 2);
    const upright = (LETTER + 0.5) * size * t(figure.y_label).length < least; // else above the chart
    const turned = { class: 'vv-axis', x: -(top + low) / 2, y: 14 * size, transform: 'rotate(-90)' };
    if (upright) parts.push(text(turned, t(figure.y_label)));
    points = [];
    jump = lines[0]?.x.length ?? 1;
    const pointed = (one, i, left, top) => {
      const of = nth(one.of, i);
      const key = one.key || of.lit || headKey(of);
      const act = pick ? () => pick(one.key || of) : picking(self, of);
      points.push({ left, top, key, told: () => told(figure, one, i), pick: act });
      return key || undefined;
    };
    const { bars } = figure;
    bars?.x.forEach((at, i) => {
      const [upper, lower] = [bars.high[i], bars.low[i]].map(y).sort((a, b) => a - b);
      const [from, to] = [x(at - bars.width / 2), x(at + bars.width / 2)];
      const box = { x: from, y: upper, width: to - from, height: Math.max(0.5, lower - upper) };
      const lit = pointed(bars, i, (from + to) / 2, upper);
      parts.push(svg('rect', { ...box, fill: ink(bars.colours[i]), 'data-lit': lit }));
    });
    for (const { value, upright, colour } of figure.levels) {
      const [from, to] = upright
        ? [top, low].map((at) => [x(value), at])
        : [left, right].map((at) => [at, y(value)]);
      const inside = upright ? left <= x(value) && x(value) <= right : top <= y(value) && y(value) <= low;
      if (inside) parts.push(line({ class: 'vv-level', style: `stroke:${ink(colour)}` }, from, to));
    }
    for (const one of figure.series) {
      const colour = ink(one.colour);
      const known = one.x.map((_, i) => i).filter((i) => one.y[i] !== null);
      const drawn = (values) => known.map((i) => `${x(one.x[i]).toFixed(1)},${y(values[i]).toFixed(1)}`);
      if (one.band && !one.line)
        for (const i of known) {
          const [from, to] = one.band.map((end) => [x(one.x[i]), y(end[i])]);
          parts.push(line({ class: 'vv-error-bar', stroke: colour }, from, to));
        }
      else if (one.band) {
        const around = [...drawn(one.band[0]), ...drawn(one.band[1]).reverse()].join(' ');
        parts.push(svg('polygon', { class: 'vv-band', points: around, fill: colour }));
      }
      const stroke = { fill: 'none', 'stroke-width': 4.6 * one.thick, 'data-lit': one.key || undefined };
      if (one.line)
        parts.push(svg('polyline', { points: drawn(one.y).join(' '), ...stroke, ...stroked(one) }));
      for (const i of one.dots || one.key ? known : []) {
        const [cx, cy] = [x(one.x[i]), y(one.y[i])].map((px) => Number(px.toFixed(1)));
        const lit = pointed(one, i, cx, cy);
        const dot = { class: 'vv-dotted', cx, cy, r: one.line ? 3.2 : 4.5, fill: colour, 'data-lit': lit };
        if (one.dots) parts.push(svg('circle', dot));
      }
    }
    if (beside > 16) parts.push(...ends(lines, { x, y, right, top, low, size, ink, pick }));
    mark(null);
    plot.setAttribute('width', width);
    plot.setAttribute('height', height);
    plot.setAttribute('aria-label', operated(t(figure.title), axesOf(figure)));
    plot.replaceChildren(...parts, ring);
    relit(plot);
    title.textContent = [t(figure.title), upright ? '' : t(figure.y_label)].filter(Boolean).join(' · ');
    plot.parentElement.hidden = title.hidden = !figure.series.length && !bars;
    legend.replaceChildren(...legendOf({ ...figure, y: range }).map(entry));
    say(notes, figure.notes.map((one) => t(one)).join(' '));
    under.forget();
  }

  /** The pointer's position on the x axis. */
  const at = (event) => reached(event.clientX - plot.getBoundingClientRect().left);
  const up = (event) => level(event.clientY - plot.getBoundingClientRect().top);
  return { node, draw, plot, at, up };
}

/** A chart beside a view's figure, with its own size: `draw(chart, width, tall)`. `make` draws it. */
export function chartBeside(self, options = {}, make = chart) {
  const side = Object.create(self);
  const { draw, ...drawn } = make(side, options);
  const beside = (figure, width, tall) => {
    Object.assign(side, { width, tall });
    draw(figure);
  };
  return { ...drawn, draw: beside };
}

/** The distance between two ticks. */
const apart = (found) => (found.length > 1 ? found[1][0] - found[0][0] : 1);
