// A chart with axes of its own: dots and lines over whole numbers, a level to compare with, under pointer,
// finger and keys.

import { follow, ringed } from './dots.js';
import { el, svg } from './elements.js';
import { number, ticks } from './numbers.js';
import { still } from './still.js';
import { t } from './words.js';

// first to last, told apart with any colour vision
const RAMP = [
  [59, 143, 208],
  [138, 124, 195],
  [214, 98, 140],
  [224, 130, 44],
];

function shaded(share) {
  const at = share * (RAMP.length - 1);
  const low = Math.min(RAMP.length - 2, Math.floor(at));
  const parts = RAMP[low].map((value, i) => Math.round(value + (RAMP[low + 1][i] - value) * (at - low)));
  return `rgb(${parts.join(' ')})`;
}

/**
 * A legend's entry: a line or a dot, and a name.
 * @param {{ name: string, colour: string, line?: any, dots?: any, dashed?: boolean }} series
 */
function entry({ name, line, dots, colour, dashed }) {
  const mark = svg('svg', { width: 22, height: 12, 'aria-hidden': 'true' });
  if (line || dashed)
    mark.append(
      svg('line', {
        x1: 1,
        x2: 21,
        y1: 6,
        y2: 6,
        stroke: colour,
        'stroke-width': 2,
        'stroke-dasharray': dashed ? '4 3' : undefined,
      }),
    );
  if (dots) mark.append(svg('circle', { cx: 11, cy: 6, r: 4, fill: colour }));
  return el('span', { class: 'vv-legend' }, mark, el('span', { text: name }));
}

/** The outline of a series' band: along its lowest values, and back along its highest. */
function outlined({ points, band }, x, y) {
  const ends = [0, 1].map((end) =>
    points.map((point, i) => `${x(point.x).toFixed(1)},${y(band[i][end]).toFixed(1)}`),
  );
  return [...ends[0], ...ends[1].reverse()].join(' ');
}

/**
 * Makes a chart. `draw({title, across, up, last, most, series, level, names, unit, at})` draws it at the room
 * there is: x runs over the whole numbers 1 to `last`, or over their `names`, y from 0 to a little more than
 * `most`, in a `unit`; `at` is where a line stands. A series has points {x, y, told(), pick()}, and `band`: a
 * lowest and a highest y for each of them. Two charts of the same view that stand side by side get one scale:
 * the larger `most` of both.
 */
export function chart(self) {
  const title = el('p', { class: 'vv-h' });
  const legend = el('p', { class: 'vv-legends' });
  const plot = svg('svg', { class: 'vv-chart', role: 'application', tabindex: 0 });
  const node = el('div', { class: 'vv-stack' }, title, el('div', { class: 'vv-plot' }, plot), legend);
  let points = [];
  const { ring, mark } = ringed();
  const under = follow(self, plot, { points: () => points, mark });

  function draw(figure) {
    self.most = still(self, `${figure.across} ${figure.up}`, 0, figure.most)[1];
    const most = Math.max(...self.beside().map((other) => other.most || 0), self.most) * 1.08 || 1;
    for (const other of self.beside())
      if (other.scale !== undefined && other.scale !== most) requestAnimationFrame(() => other.draw());
    self.scale = most;
    const size = self.zoom;
    const EDGE = { left: 58 * size, right: 16 * size, top: 14 * size, bottom: 46 * size };
    const width = Math.max(280, self.width);
    const height = Math.max(120, Math.round(self.tall)); // a page that takes shape may have no room yet
    const right = width - EDGE.right;
    const low = height - EDGE.bottom;
    const x = (value) => EDGE.left + ((value - 0.4) / (figure.last + 0.2)) * (right - EDGE.left);
    const y = (value) => low - (value / most) * (low - EDGE.top);
    const broad = Math.max(26, 9 * Math.max(...(figure.names ?? ['']).map((name) => name.length)));
    const every = Math.max(1, Math.ceil((broad * size * figure.last) / (right - EDGE.left)));
    const ink = 'currentColor';
    const across = Array.from({ length: figure.last }, (_, i) => i + 1).filter(
      (value) => (value - 1) % every === 0,
    );
    const parts = [
      ...ticks(0, most, 5).flatMap((value) => [
        svg('line', { class: 'vv-grid', x1: EDGE.left, x2: right, y1: y(value), y2: y(value) }),
        svg(
          'text',
          { x: EDGE.left - 8, y: y(value) + 4, 'text-anchor': 'end' },
          number(value) + (figure.unit ?? ''),
        ),
      ]),
      ...across.map((value) =>
        svg(
          'text',
          { x: x(value), y: low + 18 * size, 'text-anchor': 'middle' },
          figure.names?.[value - 1] ?? String(value),
        ),
      ),
      svg(
        'text',
        { class: 'vv-axis', x: (EDGE.left + right) / 2, y: height - 6, 'text-anchor': 'middle' },
        figure.across,
      ),
      svg(
        'text',
        {
          class: 'vv-axis',
          x: -(EDGE.top + low) / 2,
          y: 14 * size,
          'text-anchor': 'middle',
          transform: 'rotate(-90)',
        },
        figure.up,
      ),
    ];
    if (figure.at)
      parts.push(svg('line', { class: 'vv-at', x1: x(figure.at), x2: x(figure.at), y1: EDGE.top, y2: low }));
    points = [];
    for (const one of figure.series) {
      const colour = one.shade === undefined ? (one.dots ? 'var(--vv-blue)' : ink) : shaded(one.shade);
      const found = one.points.map((point) => ({ ...point, left: x(point.x), top: y(point.y) }));
      if (one.band)
        parts.push(svg('polygon', { class: 'vv-band', points: outlined(one, x, y), fill: colour }));
      if (one.line)
        parts.push(
          svg('polyline', {
            points: found.map((point) => `${point.left.toFixed(1)},${point.top.toFixed(1)}`).join(' '),
            stroke: colour,
            fill: 'none',
            'stroke-width': 1.6,
          }),
        );
      if (one.dots)
        parts.push(
          ...found.map((point) =>
            svg('circle', {
              class: 'vv-dotted',
              cx: point.left.toFixed(1),
              cy: point.top.toFixed(1),
              r: one.line ? 3.2 : 4.5,
              fill: colour,
            }),
          ),
        );
      one.colour = colour;
      if (one.dots) points.push(...found.filter((point) => point.told));
    }
    if (figure.level)
      parts.push(
        svg('line', {
          class: 'vv-level',
          x1: EDGE.left,
          x2: right,
          y1: y(figure.level.value),
          y2: y(figure.level.value),
        }),
      );
    mark(null);
    plot.setAttribute('width', width);
    plot.setAttribute('height', height);
    plot.setAttribute(
      'aria-label',
      `${figure.title}. ${figure.up}, ${figure.across}. ${t('Arrow keys move, Enter picks.')}`,
    );
    plot.replaceChildren(...parts, ring);
    title.textContent = figure.title;
    const shown = figure.series.filter(
      (_, i) => figure.series.length <= 12 || i === 0 || i === figure.series.length - 1 || (i + 1) % 4 === 0,
    );
    const level = figure.level
      ? [entry({ name: figure.level.name, colour: 'var(--vv-orange)', dashed: true })]
      : [];
    legend.replaceChildren(...shown.map(entry), ...level);
    under.forget();
  }

  return { node, draw };
}
