// Pointer, touch and keyboard support for fields of patches and for a chart's dots, with tooltips.

import { div, el, svg } from './elements.js';
import { t } from './i18n.js';

const EDGE = 6; // px kept free at the window's edges

/** The page's only tooltip. Lines are plain text; the first is bold. */
export const tip = {
  /** @type {HTMLElement | null} */
  node: null,
  show(event, ...lines) {
    if (event.linked) return; // the figure under the pointer shows the tooltip
    const node = tip.node ?? el('div', { class: 'vv-tip', 'aria-hidden': 'true' });
    if (!tip.node) document.body.append(node);
    tip.node = node;
    tip.write(lines);
    const [x, y, wide] = [event.clientX, event.clientY, node.offsetWidth];
    const start = x > window.innerWidth * 0.6 ? x - 14 - wide : x + 14;
    const within = Math.max(EDGE, Math.min(start, window.innerWidth - EDGE - wide));
    const [down, own] = y > 110 ? [y - 12, '-100%'] : [y + 18, '0'];
    node.style.transform = `translate(${within}px,${down}px) translateY(${own})`;
    node.classList.add('vv-on');
  },
  /** Replaces the lines, where the tooltip is. */
  write(lines) {
    const node = tip.node;
    if (!node) return;
    while (node.childElementCount < lines.length) node.append(el('div'));
    [...node.children].forEach((line, i) => {
      const text = lines[i] || '';
      if (line.textContent !== text) line.textContent = text;
    });
  },
  hide() {
    tip.node?.classList.remove('vv-on');
  },
};

/** The accessible name of a figure operated by keys: its non-empty parts as sentences. */
export const operated = (...parts) =>
  [...parts, t('Arrow keys move, Enter picks.')]
    .filter(Boolean)
    .map((part) => part.replace(/(?<![.。])$/, '.'))
    .join(' ');

/**
 * @typedef {object} CellOptions
 * @property {() => any} place
 * @property {(cell: number, event: any) => void} hover
 * @property {() => void} [leave]
 * @property {(cell: number, event?: any) => void} [pick]
 * @property {(cell: number, other: any) => void} [hold]
 * @property {(cell: number) => string} name
 * @property {() => any} label
 * @property {() => number} [start]
 */

/**
 * Makes `canvas` a field of rows x cols cells for pointer, touch and keyboard. `place()` returns the field's
 * {rows, cols, x, y, width, height} in CSS pixels of the canvas; `start()` is the first cell for the arrow
 * keys. `hover(cell, event)`, `pick(cell, event)` and `leave()` are callbacks. Screen readers read `label()`,
 * the field's content as one text or several, updated by each drawing, and `name(cell)`. `hold(cell, other)`
 * is called after a pick in the other checkpoint's figure, for selections that are not settings.
 * @param {any} self
 * @param {HTMLCanvasElement} canvas
 * @param {CellOptions} options
 */
export function cells(self, canvas, { place, hover, leave, pick, hold, name, label, start }) {
  let current = -1;
  /** @type {any} */
  let box = null;
  /** @type {any} */
  let seen = null; // pointer position with subpixel precision, which click events lack
  canvas.tabIndex = 0;
  canvas.setAttribute('role', 'application');
  const describe = () => canvas.setAttribute('aria-label', operated(...[label()].flat(2)));
  const at = (event) => {
    const p = place();
    if (!p) return -1;
    box = box || canvas.getBoundingClientRect();
    const col = Math.floor(((event.clientX - box.left - p.x) / p.width) * p.cols);
    const row = Math.floor(((event.clientY - box.top - p.y) / p.height) * p.rows);
    return row >= 0 && col >= 0 && row < p.rows && col < p.cols ? row * p.cols + col : -1;
  };
  const number = self.fields.length; // the matching field of the other checkpoint's figure follows
  const twins = () => self.beside().flatMap((other) => other.fields[number] ?? []);
  const move = (cell, event) => {
    if (cell < 0) return out(event);
    current = cell;
    self.root.dataset.cur = cell;
    hover(cell, event);
    if (!event.linked) lead(event);
  };
  /** Points at the same relative position in the neighbouring figures, whatever their sizes and grids. */
  const lead = (event) => {
    const p = place();
    const rect = canvas.getBoundingClientRect();
    const across = (event.clientX - rect.left - p.x) / p.width;
    const down = (event.clientY - rect.top - p.y) / p.height;
    for (const twin of twins()) twin.follow(across, down, Boolean(event.keyboard));
  };
  const follow = (across, down, keyboard) => {
    const p = place();
    const rect = canvas.getBoundingClientRect();
    if (!p) return;
    const [left, top] = [rect.left + p.x + across * p.width, rect.top + p.y + down * p.height];
    const event = { clientX: left, clientY: top, keyboard, linked: true };
    stale();
    move(at(event), event);
  };
  const out = (event) => {
    if (!event?.linked) for (const twin of twins()) twin.out({ linked: true });
    if (current < 0 && !self.root.dataset.cur) return;
    current = -1;
    delete self.root.dataset.cur;
    if (!event?.linked) tip.hide();
    leave?.();
  };
  const stale = () => (box = null);
  window.addEventListener('scroll', stale, { passive: true, capture: true, signal: self.life.signal });
  canvas.addEventListener('pointerenter', stale);
  canvas.addEventListener('pointerdown', (event) => {
    stale();
    seen = event;
    if (event.pointerType !== 'mouse') move(at(event), event);
  });
  canvas.addEventListener('pointermove', (event) => {
    seen = event;
    move(at(event), event);
  });
  canvas.addEventListener('pointerleave', out);
  canvas.addEventListener('pointercancel', out);
  canvas.addEventListener('blur', () => {
    if (!canvas.matches(':hover')) out();
  });
  canvas.addEventListener('focus', describe);
  const choose = (cell, event) => {
    pick?.(cell, event);
    for (const twin of twins()) twin.hold(self);
  };
  canvas.addEventListener('click', (event) => {
    const away = seen ? Math.hypot(seen.clientX - event.clientX, seen.clientY - event.clientY) : 2;
    const cell = at(away < 2 ? seen : event); // the cell under the pointer, not its neighbour
    if (cell >= 0) choose(cell, event);
  });
  canvas.addEventListener('keydown', (event) => {
    const p = place();
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!p) return;
    if (event.key === 'Escape') out();
    if ((event.key === 'Enter' || event.key === ' ') && current >= 0) choose(current, event);
    else if (!step) return;
    event.preventDefault();
    if (!step) return;
    const from = current < 0 ? Math.max(0, start?.() ?? 0) : current;
    const row = Math.floor(from / p.cols) + step[0];
    const col = (from % p.cols) + step[1];
    const cell = Math.max(0, Math.min(p.rows - 1, row)) * p.cols + Math.max(0, Math.min(p.cols - 1, col));
    const rect = canvas.getBoundingClientRect();
    const [x, y, w, h] = rowByRow(p, p)(cell);
    move(cell, { clientX: rect.left + x + w / 2, clientY: rect.top + y + h / 2, keyboard: true });
    self.say(name(cell));
  });
  describe();
  self.fields.push({ describe, follow, out, hold: (from) => current >= 0 && hold?.(current, from) });
  return { at };
}

/** The x, y, width and height of each cell of a field that fills a rectangle row by row. */
export function rowByRow({ rows, cols }, { x = 0, y = 0, width, height }) {
  const [w, h] = [width / cols, height / rows];
  return (cell) => [x + (cell % cols) * w, y + Math.floor(cell / cols) * h, w, h];
}

/** A canvas on its plot, with an outline of the hovered cell that PNG exports omit. */
export function plotted(attributes = {}) {
  const canvas = el('canvas', attributes);
  const plot = div('vv-plot', canvas);
  const spot = outline(plot);
  spot.node.dataset.export = 'no';
  return { canvas, plot, spot };
}

/** An outline over a canvas, moved without redrawing the canvas; optionally in its own colour. */
export function outline(parent, kind = '', colour = '') {
  const node = el('div', { class: `vv-outline ${kind}`, hidden: true });
  parent.append(node);
  let last = '';
  const put = (x, y, width, height) => {
    const place = `transform:translate(${x}px,${y}px);width:${width}px;height:${height}px`;
    const style = `${place};border-color:${colour}`;
    if (style !== last) node.style.cssText = last = style;
    if (node.hidden) node.hidden = false;
  };
  const hide = () => {
    if (!node.hidden) node.hidden = true;
  };
  /** Outlines a cell of a field; hides the outline for a negative cell. */
  const over = (place, cell) => (cell >= 0 ? put(...rowByRow(place, place)(cell)) : hide());
  return { node, put, hide, over };
}

const NEAR = 24; // px from the pointer to a dot

/**
 * Follows pointer and keys over `plot`. `points()` returns the drawn dots: {left, top, told(), pick?()}.
 * `mark(point)` shows the selected dot, or none for null. Up and down arrows move by `rows()` dots, as they
 * are arranged on the chart. Call `forget()` after the chart is redrawn.
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

/** A ring around the selected dot, to append on top of a drawing; `mark` moves it. */
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
