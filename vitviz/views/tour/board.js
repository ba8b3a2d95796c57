// The model's input as patches, with weights over them, and a vector as a strip of colours.

import { tinted } from '../../frontend/colours.js';
import { div, el, fit, span } from '../../frontend/elements.js';
import { patchName, placeName, t } from '../../frontend/i18n.js';
import { bounds, number } from '../../frontend/numbers.js';
import { cells, outline, plotted, rowByRow, tip } from '../../frontend/pointer.js';
import { beside, digits, drawPatch, largest, shapeOf } from './parts.js';

/**
 * The model's input as patches; `draw` draws weights over it and outlines the selected patches. `pick(cell)`
 * gets a clicked patch; `tell(cell)` returns the tooltip's last line.
 * @param {any} self
 * @param {{label: any, pick?: (cell: number) => void, tell?: (cell: number) => string}} options
 */
export function board(self, { label, pick, tell }) {
  const canvas = el('canvas');
  const plot = div('vv-plot', canvas);
  const chosen = outline(plot, 'vv-pinned');
  const second = outline(plot, 'vv-key');
  const spot = outline(plot);
  spot.node.dataset.export = 'no';
  /** @type {any} */
  let size = null;
  let marked = -1;
  const lines = (cell) => [patchName(cell), placeName(self.grid, cell), ...(tell ? [tell(cell)] : [])];
  cells(self, canvas, {
    place: () => size,
    label: () => label,
    name: (cell) => lines(cell).join(', '),
    start: () => marked,
    hover: (cell, event) => {
      spot.over(size, cell);
      tip.show(event, ...lines(cell));
    },
    leave: () => spot.hide(),
    pick,
  });
  const draw = ({ width, weights, order, gap = 0, mark = -1, key = -1, lined = true }) => {
    const { rows, cols, aspect } = shapeOf(self);
    const height = width * aspect;
    const context = fit(canvas, width, height, self.density);
    const pitch = [width / cols, height / rows];
    size = { rows, cols, x: 0, y: 0, width, height };
    for (let i = 0; i < rows * cols; i++) {
      const [w, h] = pitch;
      const [left, top] = [(i % cols) * w + gap / 2, Math.floor(i / cols) * h + gap / 2];
      const seam = gap ? 0 : 0.5;
      drawPatch(self, context, order ? order[i] : i, [left, top, w - gap + seam, h - gap + seam]);
    }
    if (weights) {
      context.globalAlpha = 0.75;
      const image = tinted(weights, rows, cols, 'viridis', 0, bounds(weights)[1] || 1);
      context.drawImage(image, 0, 0, width, height);
      context.globalAlpha = 1;
    } else if (lined && !gap) {
      context.fillStyle = 'rgb(255 255 255 / .45)';
      for (let c = 1; c < cols; c++) context.fillRect(c * pitch[0] - 0.5, 0, 1, height);
      for (let r = 1; r < rows; r++) context.fillRect(0, r * pitch[1] - 0.5, width, 1);
    }
    marked = mark;
    chosen.over(size, mark);
    second.over(size, key);
  };
  return { node: plot, draw };
}

/**
 * A vector as a strip of colours, wrapped to the width; the tooltip shows each number, and the selected one
 * is outlined. `touched(i)` gets the hovered number, -1 for none; `extra(i)` returns the tooltip's last line.
 * @param {any} self
 * @param {{label: string, pick?: (i: number) => void, touched?: (i: number) => void,
 *   extra?: (i: number) => string}} options
 */
export function strip(self, { label, pick, touched, extra }) {
  const { canvas, plot, spot } = plotted();
  const chosen = outline(plot, 'vv-pinned');
  const title = span(label);
  const range = el('span', { class: 'vv-range' });
  const node = div('vv-strip', el('p', { class: 'vv-striplabel' }, title, range), plot);
  /** @type {any} */
  let state = null;
  let marked = -1;
  const put = (mark, i) => {
    if (i < 0) return mark.hide();
    const [x, y] = rowByRow(state, state)(i);
    mark.put(x, y, Math.max(3, state.cell), state.tall);
  };
  const lines = (i) => [
    digits(state.values[i]),
    t('Number {index} of {count}', { index: i + 1, count: state.values.length }),
    ...(extra ? [extra(i)] : []),
  ];
  cells(self, canvas, {
    place: () => state,
    label: () => title.textContent,
    name: (i) => (i < state.values.length ? lines(i).join(', ') : ''),
    start: () => marked,
    hover: (i, event) => {
      if (i >= state.values.length) {
        tip.hide();
        return spot.hide();
      }
      put(spot, i);
      touched?.(i);
      tip.show(event, ...lines(i));
    },
    leave: () => {
      spot.hide();
      touched?.(-1);
    },
    pick: pick && ((i) => i < state.values.length && pick(i)),
  });
  const draw = (values, { width, most = largest(values), mark = -1, text }) => {
    const count = values.length;
    const rows = Math.max(1, Math.ceil((count * 3.5) / width));
    const cols = Math.ceil(count / rows);
    const { large } = beside(self);
    const cell = Math.min(12 * large, width / cols);
    const tall = (rows > 6 ? 8 : rows > 2 ? 12 : 18) * large;
    const down = tall + 2;
    const context = fit(canvas, cols * cell, rows * down - 2, self.density);
    state = { values, rows, cols, cell, tall, x: 0, y: 0, width: cols * cell, height: rows * down };
    context.imageSmoothingEnabled = false;
    for (let r = 0; r < rows; r++) {
      const part = values.slice(r * cols, (r + 1) * cols);
      if (!part.length) break;
      const image = tinted(part, 1, part.length, 'cividis', -most, most);
      context.drawImage(image, 0, r * down, part.length * cell, tall);
    }
    if (text) title.textContent = text;
    range.textContent = t('colours from {low} to {high}', { low: number(-most), high: number(most) });
    marked = mark;
    put(chosen, mark);
  };
  return { node, draw };
}
