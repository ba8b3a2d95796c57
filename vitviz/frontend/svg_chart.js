// A chart as described by `vitviz/charts/chart.py`, drawn as SVG: where frames of a camera or video pass, and
// in documents without a server.

import { beside, chartFrame, entry, ink, spaceOf, stroked } from './chart.js';
import { svg } from './elements.js';
import { t } from './i18n.js';
import { ends } from './line_labels.js';

/**
 * Makes a chart. `draw(chart)` draws a view's item "chart" in the available space. The y range only grows
 * across the frames of a video and is shared by two figures of the same view. `pick` as in `chartFrame`.
 */
export function chart(self, { pick = null } = {}) {
  const plot = svg('svg', { class: 'vv-chart', tabindex: 0 });
  const frame = chartFrame(self, plot, pick);
  let reached = (px) => px; // value on an axis at a position
  let level = (px) => px;

  function draw(given) {
    const { figure, width, height, upright, entries } = frame.begin(given);
    const size = self.zoom;
    const space = spaceOf(self, figure, width, height, figure);
    const { left, right, top, low, lines } = space;
    const [first, last] = figure.x;
    const [least, most] = figure.y;
    const x = (at) => left + ((at - first) / (last - first)) * (right - left);
    reached = (px) => first + ((px - left) / (right - left)) * (last - first);
    const y = (at) => low - ((at - least) / (most - least)) * (low - top);
    level = (px) => least + ((low - px) / (low - top)) * (most - least);
    const text = (attributes, said) => svg('text', { 'text-anchor': 'middle', ...attributes }, said);
    const line = (attributes, from, to) =>
      svg('line', { ...attributes, x1: from[0], y1: from[1], x2: to[0], y2: to[1] });
    const parts = [
      ...space.up.flatMap(([at, name]) => [
        line({ class: 'vv-grid' }, [left, y(at)], [right, y(at)]),
        text({ x: left - 8, y: y(at) + 4, 'text-anchor': 'end' }, name),
      ]),
      ...space.along.map(([at, name]) => text({ x: x(at), y: low + 18 * size }, name)),
      ...space.label.map((said, i) => {
        const above = 14 * size * (space.label.length - 1 - i);
        const style = `font-size:${13.5 * space.fits}px`;
        return text({ class: 'vv-axis', x: space.middle, y: height - 6 - above, style }, said);
      }),
    ];
    const turned = { class: 'vv-axis', x: -(top + low) / 2, y: 14 * size, transform: 'rotate(-90)' };
    if (upright) parts.push(text(turned, t(figure.y_label)));
    frame.restart(lines);
    const { bars } = figure;
    bars?.x.forEach((at, i) => {
      const [upper, lower] = [bars.high[i], bars.low[i]].map(y).sort((a, b) => a - b);
      const [from, to] = [x(at - bars.width / 2), x(at + bars.width / 2)];
      const box = { x: from, y: upper, width: to - from, height: Math.max(0.5, lower - upper) };
      const lit = frame.point(figure, bars, i, (from + to) / 2, upper);
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
        const lit = frame.point(figure, one, i, cx, cy);
        const dot = { class: 'vv-dotted', cx, cy, r: one.line ? 3.2 : 4.5, fill: colour, 'data-lit': lit };
        if (one.dots) parts.push(svg('circle', dot));
      }
    }
    if (space.named) parts.push(...ends(lines, { x, y, right, top, low, size, ink, pick }));
    plot.setAttribute('width', width);
    plot.setAttribute('height', height);
    plot.replaceChildren(...parts, frame.ring);
    frame.legend.replaceChildren(...entries.map(entry));
    frame.end();
  }

  /** The pointer's position on the x axis. */
  const at = (event) => reached(event.clientX - plot.getBoundingClientRect().left);
  const up = (event) => level(event.clientY - plot.getBoundingClientRect().top);
  return { node: frame.node, draw, plot, at, up };
}

/** A chart beside a view's figure, with its own size: `draw(chart, width, tall)`. */
export const chartBeside = (self, options = {}) => beside(chart, self, options);
