// What stands beside the map of tokens: small maps of all depths, and the histogram of norms.

import { el, fit, sheet } from '../../canvas/elements.js';
import { bounds, number, ticks } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';

/** How a depth is called: 0 enters block 1, every other is a block's output. */
const depthName = (depth) => (depth ? t('after block {block}', { block: depth }) : t('entering block 1'));

/**
 * How many of `count` small maps of an aspect stand in a row, so that all find room and none is wider than
 * `most`.
 */
function across(count, width, height, aspect, most) {
  let n = Math.max(1, Math.ceil(width / most));
  while (n < count && Math.ceil(count / n) * ((width / n) * aspect + 22) > height) n += 1;
  return n;
}

/** A small map for every depth; `paint(depth, canvas)` draws one. */
export function strip(self) {
  const title = el('p', { class: 'vv-h' });
  const maps = el('div', { class: 'vv-depths', role: 'group', 'aria-label': t('Depth') });
  const node = el('div', { class: 'vv-stack vv-tight' }, title, maps);
  function draw({ text, width, height, most = 150, paint }) {
    const count = self.value.layers + 1;
    const { rows, cols, patch } = self.grid;
    const aspect = (rows * patch[0]) / (cols * patch[1]);
    if (maps.childElementCount !== count) {
      maps.replaceChildren(
        ...Array.from({ length: count }, (_, depth) => {
          const canvas = sheet(cols, rows);
          const label = `${t('Depth')} ${depth}, ${depthName(depth)}`;
          return el(
            'button',
            {
              type: 'button',
              class: 'vv-thumb',
              'aria-label': label,
              title: label,
              onclick: () => self.set('depth', depth),
            },
            canvas,
            el('span', { text: String(depth) }),
          );
        }),
      );
    }
    const n = across(count, width, height, aspect, most);
    maps.style.gridTemplateColumns = `repeat(${n}, minmax(0, ${most}px))`;
    [...maps.children].forEach((button, depth) => {
      paint(depth, button.firstChild);
      button.setAttribute('aria-pressed', String(depth === self.settings.depth));
    });
    title.textContent = text;
  }
  return { node, draw };
}

/** The histogram of the patches' norms at one depth, with the limit, which can be drawn along. */
export function histogram(self) {
  const title = el('p', { class: 'vv-h' });
  const canvas = el('canvas', { class: 'vv-histogram', role: 'img' });
  const said = el('p', { class: 'vv-text' });
  const node = el(
    'div',
    { class: 'vv-stack vv-tight' },
    title,
    el('div', { class: 'vv-plot' }, canvas),
    said,
  );
  let now = null;
  let dragged = false;
  const moved = (event) => {
    if (!now?.mad) return;
    const at =
      now.from +
      ((event.clientX - canvas.getBoundingClientRect().left - now.left) / now.width) * (now.to - now.from);
    const control = self.control('k');
    const k = Math.round((at - now.median) / now.mad / control.step) * control.step;
    self.set('k', Math.max(control.minimum, Math.min(control.maximum, k)));
  };
  canvas.addEventListener('pointerdown', (event) => {
    dragged = true;
    canvas.setPointerCapture(event.pointerId);
    moved(event);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (dragged) moved(event);
  });
  for (const ends of ['pointerup', 'pointercancel'])
    canvas.addEventListener(ends, () => {
      dragged = false;
    });

  function draw({ values, prefix, median, mad, limit, text, facts, width, height }) {
    const known = values.filter(Number.isFinite);
    const [low, high] = bounds([...known, ...prefix.map((one) => one.value)]);
    const pad = (high - low) * 0.03 || 1;
    const from = Math.max(0, low - pad);
    const to = Math.max(high + pad, dragged && now ? now.to : 0);
    const size = self.zoom;
    const count = 36;
    const bins = new Array(count).fill(0);
    const left = 34 * size;
    const right = 8;
    const bottom = 34 * size;
    const top = prefix.length ? 22 * size : 6;
    const wide = width - left - right;
    for (const value of known)
      bins[Math.min(count - 1, Math.floor(((value - from) / (to - from)) * count))] += 1;
    const most = Math.max(...bins, 1);
    const x = (value) => left + ((value - from) / (to - from)) * wide;
    const y = (n) => height - bottom - (n / most) * (height - bottom - top);
    const context = fit(canvas, width, height, self.density);
    const ink = self.colour('color');
    const orange = self.colour('--vv-orange');
    now = { from, to, left, width: wide, median, mad };
    context.font = `${12 * self.zoom}px ${self.colour('font-family')}`;
    bins.forEach((n, i) => {
      const begin = x(from + ((to - from) * i) / count);
      const middle = from + ((to - from) * (i + 0.5)) / count;
      context.fillStyle = middle > limit ? orange : self.colour('--vv-blue');
      if (n)
        context.fillRect(
          begin + 0.5,
          Math.min(y(n), height - bottom - 2),
          wide / count - 1,
          Math.max(2, height - bottom - y(n)),
        );
    });
    context.fillStyle = context.strokeStyle = ink;
    context.globalAlpha = 0.8;
    context.fillRect(left, height - bottom, wide, 1);
    context.textAlign = 'center';
    context.textBaseline = 'top';
    for (const value of ticks(from, to, 6))
      context.fillText(number(value), x(value), height - bottom + 4 * size);
    context.fillText(t('Norm of the token'), left + wide / 2, height - 14 * size);
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const n of new Set([0, most])) context.fillText(String(n), left - 6, y(n));
    context.globalAlpha = 1;
    prefix.forEach(({ name, value }) => {
      // a named arrow for each prefix token
      context.beginPath();
      context.moveTo(x(value), top - 2);
      context.lineTo(x(value) - 4, top - 10);
      context.lineTo(x(value) + 4, top - 10);
      context.fill();
      if (prefix.length > 2) return;
      context.textAlign = x(value) > left + wide * 0.75 ? 'right' : 'left';
      context.fillText(name, x(value) + (context.textAlign === 'left' ? 8 : -8), top - 8 * size);
    });
    context.setLineDash([5, 4]);
    context.strokeStyle = orange;
    context.lineWidth = 1.6;
    context.beginPath();
    context.moveTo(x(limit), top - 4);
    context.lineTo(x(limit), height - bottom);
    if (limit <= to) context.stroke();
    context.setLineDash([]);
    title.textContent = text;
    said.textContent = facts;
    canvas.setAttribute('aria-label', `${text}. ${facts}`);
  }
  return { node, draw };
}
