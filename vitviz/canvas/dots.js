// The dots of a chart under pointer, finger and keys: the nearest is told, Enter or a click picks it.

import { svg } from './elements.js';
import { tip } from './tip.js';

const NEAR = 24; // px from the pointer to a dot

/**
 * Follows pointer and keys over `plot`. `points()` are the dots as they were drawn: {left, top, told(),
 * pick?()}; `mark(point)` shows which one is told, with null that none is; the arrows up and down go `rows()`
 * dots on, as up and down lie on the chart. `forget()` is for a chart that has been drawn anew.
 */
export function follow(self, plot, { points, mark, rows = () => ({ ArrowUp: 1, ArrowDown: -1 }) }) {
  let current = -1;

  const leave = () => {
    current = -1;
    tip.hide();
    mark(null);
  };
  const select = (index, event) => {
    const point = points()[index];
    if (!point) return leave();
    current = index;
    mark(point);
    const box = plot.getBoundingClientRect();
    tip.show(event ?? { clientX: box.left + point.left, clientY: box.top + point.top }, ...point.told());
  };
  const nearest = (event) => {
    const box = plot.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const away = points().map((point) => (point.left - x) ** 2 + (point.top - y) ** 2);
    const least = Math.min(...away);
    return least < NEAR ** 2 ? away.indexOf(least) : -1;
  };
  const step = (key) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, ...rows() }[key];
    if (!by || !points().length) return false;
    select(Math.max(0, Math.min(points().length - 1, current < 0 ? 0 : current + by)));
    self.say(points()[current].told().filter(Boolean).join(', '));
    return true;
  };
  plot.addEventListener('pointermove', (event) => select(nearest(event), event));
  plot.addEventListener('pointerdown', (event) => select(nearest(event), event));
  plot.addEventListener('pointerleave', leave);
  plot.addEventListener('blur', leave);
  plot.addEventListener('click', (event) => points()[nearest(event)]?.pick?.());
  plot.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') return leave();
    const picked = (event.key === 'Enter' || event.key === ' ') && points()[current];
    if (picked) picked.pick?.();
    if (picked || step(event.key)) event.preventDefault();
  });
  return { forget: () => (current = -1) };
}

/** A ring around the dot that is told, to be put on top of a drawing; `mark` moves it. */
export function ringed() {
  const ring = svg('circle', { class: 'vv-mark-dot', r: 8, visibility: 'hidden' });
  const mark = (point) => {
    if (!point) return ring.setAttribute('visibility', 'hidden');
    ring.setAttribute('cx', point.left);
    ring.setAttribute('cy', point.top);
    ring.removeAttribute('visibility');
  };
  return { ring, mark };
}
