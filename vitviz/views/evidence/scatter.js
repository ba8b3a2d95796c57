// Dots in a square whose axes have one scale, so that the diagonal says: both alike.

import { svg } from '../../canvas/elements.js';
import { number, ticks } from '../../canvas/numbers.js';
import { tip } from '../../canvas/tip.js';
import { t } from '../../canvas/words.js';

const NEAR = 24; // px from the pointer to a dot

/** `draw({points, low, high, across, up, title, width, height})`; a point is {x, y, told, pick?, marked}. */
export function scatter(self) {
  const plot = svg('svg', { class: 'vv-chart', role: 'application', tabindex: 0 });
  let points = [];
  let current = -1;
  let ring = null;

  const leave = () => {
    current = -1;
    ring?.setAttribute('visibility', 'hidden');
    tip.hide();
  };
  const select = (index, event) => {
    const point = points[index];
    if (!point) return leave();
    current = index;
    ring.setAttribute('cx', point.left);
    ring.setAttribute('cy', point.top);
    ring.removeAttribute('visibility');
    const box = plot.getBoundingClientRect();
    tip.show(event ?? { clientX: box.left + point.left, clientY: box.top + point.top }, ...point.told());
  };
  const nearest = (event) => {
    const box = plot.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const away = points.map((point) => (point.left - x) ** 2 + (point.top - y) ** 2);
    const least = Math.min(...away);
    return least < NEAR ** 2 ? away.indexOf(least) : -1;
  };
  plot.addEventListener('pointermove', (event) => select(nearest(event), event));
  plot.addEventListener('pointerdown', (event) => select(nearest(event), event));
  plot.addEventListener('pointerleave', leave);
  plot.addEventListener('blur', leave);
  plot.addEventListener('click', (event) => points[nearest(event)]?.pick?.());
  plot.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (event.key === 'Escape') return leave();
    if ((event.key === 'Enter' || event.key === ' ') && points[current]) points[current].pick?.();
    else if (!step || !points.length) return;
    event.preventDefault();
    if (!step) return;
    select(Math.max(0, Math.min(points.length - 1, current < 0 ? 0 : current + step)));
    self.say(points[current].told().join(', '));
  });

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
    ring = svg('circle', { class: 'vv-mark-dot', r: 8, visibility: 'hidden' });
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
    current = -1;
  }

  return { node: plot, draw };
}
