// A matrix of coloured numbers under pointer, finger and keyboard.

import { colourbar } from './colourbar.js';
import { tinted } from './colours.js';
import { el, fit } from './elements.js';
import { cells, outline } from './pointer.js';
import { tip } from './tip.js';

/**
 * A matrix of numbers, both axes numbered from 1 unless `names` tell otherwise; `told(row, col)` are the
 * tooltip's lines.
 * @param {any} self
 * @param {{ told: (row: number, col: number) => string[], pick?: (row: number, col: number) => any }} options
 */
export function matrix(self, { told, pick }) {
  const title = el('p', { class: 'vv-h' });
  const canvas = el('canvas');
  const plot = el('div', { class: 'vv-plot' }, canvas);
  const spot = outline(plot);
  const chosen = outline(plot, 'vv-pinned');
  const bar = colourbar();
  const node = el('div', { class: 'vv-stack vv-tight' }, title, plot, bar.node);
  let place = null;
  let now = null;
  spot.node.dataset.export = 'no';
  cells(self, canvas, {
    place: () => place,
    label: () => title.textContent,
    name: (cell) =>
      told(Math.floor(cell / place.cols), cell % place.cols)
        .filter(Boolean)
        .join(', '),
    hover(cell, event) {
      const [w, h] = [place.width / place.cols, place.height / place.rows];
      spot.put(place.x + (cell % place.cols) * w, place.y + Math.floor(cell / place.cols) * h, w, h);
      bar.mark(now.values[cell]);
      tip.show(event, ...told(Math.floor(cell / place.cols), cell % place.cols));
    },
    leave() {
      spot.hide();
      bar.mark(null);
    },
    pick: (cell) => pick?.(Math.floor(cell / place.cols), cell % place.cols),
  });
  function draw(figure) {
    now = figure;
    const { rows, cols, width, height, most = 60, names = {} } = figure;
    const nameOf = (axis, index) => names[axis]?.[index] ?? String(index + 1);
    const size = self.zoom;
    const left = 46 * size;
    const top = 8;
    const bottom = 36 * size;
    const side = [Math.min(most, (width - left) / cols), Math.min(most, (height - top - bottom) / rows)];
    const [w, h] = side.map((one) => Math.max(6, Math.min(one, 2.2 * Math.min(...side))));
    const context = fit(canvas, left + w * cols + 4, top + h * rows + bottom, self.density);
    const [low, high] = figure.ends;
    context.imageSmoothingEnabled = false;
    context.drawImage(
      tinted(figure.values, rows, cols, figure.colours, low, high),
      left,
      top,
      w * cols,
      h * rows,
    );
    context.fillStyle = self.colour('color');
    context.globalAlpha = 0.8;
    context.font = `${12 * self.zoom}px ${self.colour('font-family')}`;
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    for (let r = 0; r < rows; r += Math.ceil((14 * size) / h))
      context.fillText(nameOf('rows', r), left - 6, top + (r + 0.5) * h);
    context.textAlign = 'center';
    const widest = Math.max(12 * size, ...(names.cols ?? []).map((name) => context.measureText(name).width));
    for (let c = 0; c < cols; c += Math.ceil((widest + 8 * size) / w))
      context.fillText(nameOf('cols', c), left + (c + 0.5) * w, top + rows * h + 10 * size);
    context.fillText(figure.across, left + (w * cols) / 2, top + rows * h + 28 * size);
    context.rotate(-Math.PI / 2);
    context.fillText(figure.down, -(top + (h * rows) / 2), 10 * size);
    place = { rows, cols, x: left, y: top, width: w * cols, height: h * rows };
    if (figure.col >= 0) chosen.put(left + figure.col * w, top, w, h * rows);
    else chosen.hide();
    title.textContent = figure.text;
    bar.node.hidden = !figure.label; // where the title says how far it goes
    bar.update(figure.colours, low, high, figure.label);
  }
  return { node, draw };
}
