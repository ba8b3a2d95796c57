// Dots in a square whose axes have one scale, so that the diagonal says: both alike.

import { follow, ringed } from '../../canvas/dots.js';
import { svg } from '../../canvas/elements.js';
import { number, ticks } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';

/** `draw({points, low, high, across, up, title, width, height})`; a point is {x, y, told, pick?, marked}. */
export function scatter(self) {
  const plot = svg('svg', { class: 'vv-chart', role: 'application', tabindex: 0 });
  let points = [];
  const { ring, mark } = ringed();
  const under = follow(self, plot, { points: () => points, mark });

  function draw(figure) {
    const { low, high, width, height } = figure;
    const size = self.zoom;
    const edge = { left: 58 * size, right: 12 * size, top: 10 * size, bottom: 44 * size };
    const right = width - edge.right;
    const bottom = height - edge.bottom;
    const x = (value) => edge.left + ((value - low) / (high - low)) * (right - edge.left);
    const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - edge.top);
    const line = (kind, from, to) =>
      svg('line', { class: kind, x1: from[0], y1: from[1], x2: to[0], y2: to[1] });
    const middle = { across: (edge.left + right) / 2, up: -(edge.top + bottom) / 2 };
    points = figure.points
      .map((point) => ({ ...point, left: x(point.x), top: y(point.y) }))
      .sort((a, b) => a.x - b.x);
    mark(null);
    plot.setAttribute('width', width);
    plot.setAttribute('height', height);
    plot.setAttribute('aria-label', `${figure.title}. ${t('Arrow keys move, Enter picks.')}`);
    plot.replaceChildren(
      ...ticks(low, high, 5).flatMap((value) => [
        line('vv-grid', [edge.left, y(value)], [right, y(value)]),
        svg('text', { x: edge.left - 8, y: y(value) + 4, 'text-anchor': 'end' }, number(value)),
        svg('text', { x: x(value), y: bottom + 17 * size, 'text-anchor': 'middle' }, number(value)),
      ]),
      line('vv-level', [x(low), y(low)], [x(high), y(high)]),
      ...points
        .filter((point) => point.marked)
        .map((point) => line('vv-apart', [point.left, y(point.x)], [point.left, point.top])),
      ...points.map((point) =>
        svg('circle', { class: 'vv-dotted', cx: point.left, cy: point.top, r: 4.5, fill: 'var(--vv-blue)' }),
      ),
      svg(
        'text',
        { class: 'vv-axis', x: middle.across, y: height - 6, 'text-anchor': 'middle' },
        figure.across,
      ),
      svg(
        'text',
        {
          class: 'vv-axis',
          x: middle.up,
          y: 14 * size,
          'text-anchor': 'middle',
          transform: 'rotate(-90)',
        },
        figure.up,
      ),
      ring,
    );
    under.forget();
  }

  return { node: plot, draw };
}
