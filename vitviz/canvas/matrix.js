// A matrix of coloured numbers under pointer, finger and keyboard.

import { colourbar } from './colourbar.js';
import { tinted } from './colours.js';
import { div, el, fit } from './elements.js';
import { letters } from './ends.js';
import { light, whenLit } from './lit.js';
import { cells, outline } from './pointer.js';
import { tip } from './tip.js';

/**
 * A matrix of numbers, both axes numbered from 1 unless `names` tell otherwise; `told` gives the tooltip's
 * lines of a row and a column, none where there is nothing to tell; `key` what its cell is lit by.
 * @param {any} self
 * @param {{ told: (row: number, col: number, value: number) => string[],
 *   pick?: (row: number, col: number) => any, key?: (row: number, col: number) => string }} options
 */
export function matrix(self, { told, pick, key }) {
  const title = el('p', { class: 'vv-h' });
  const canvas = el('canvas');
  const plot = div('vv-plot', canvas);
  const spot = outline(plot);
  const chosen = outline(plot, 'vv-pinned');
  const bar = colourbar();
  const node = div('vv-stack vv-tight', title, plot, bar.node);
  let place = null;
  let now = null;
  const at = (cell) => /** @type {[number, number]} */ ([Math.floor(cell / place.cols), cell % place.cols]);
  const lines = (cell) => told(...at(cell), now.values[cell]).filter(Boolean);
  spot.node.dataset.export = 'no';
  cells(self, canvas, {
    place: () => place,
    label: () => title.textContent,
    name: (cell) => lines(cell).join(', '),
    hover(cell, event) {
      if (!lines(cell).length) return spot.hide();
      if (key && !event.linked) light(key(...at(cell)));
      spot.over(place, cell); // itself, of several that are lit alike
      bar.mark(now.values[cell]);
      tip.show(event, ...lines(cell));
    },
    leave() {
      spot.hide();
      bar.mark(null);
      if (key) light();
    },
    pick: (cell) => pick?.(...at(cell)),
  });
  if (key)
    whenLit(self, (lit) => {
      spot.over(place, lit && place ? now.values.findIndex((_, i) => key(...at(i)) === lit) : -1);
    });
  function draw(figure) {
    now = figure;
    const { rows, cols, width, height, most = 60, names = {} } = figure;
    /** Writes the names of an axis that find room, so many cells; what has none takes none. */
    const name = (axis, count, room, write) => {
      for (let i = 0, last = -Infinity; i < count; i++) {
        const text = names[axis]?.[i] ?? String(i + 1);
        if (!text || i - last < room) continue;
        write(text, i + 0.5);
        last = i;
      }
    };
    const size = self.zoom;
    const longest = letters(names.rows ?? []) * 6.5 + (figure.down ? 26 : 12); // beside the axis's name
    const left = Math.max(46 * size, Math.min(longest * size, 0.4 * width));
    const top = 8;
    const bottom = (figure.across ? 36 : 20) * size;
    const side = [Math.min(most, (width - left) / cols), Math.min(most, (height - top - bottom) / rows)];
    const [w, h] = side.map((one) => Math.max(6, Math.min(one, 2.2 * Math.min(...side))));
    const context = fit(canvas, left + w * cols + 4, top + h * rows + bottom, self.density);
    const [low, high] = figure.ends;
    context.imageSmoothingEnabled = false;
    const image = tinted(figure.values, rows, cols, figure.colours, low, high);
    context.drawImage(image, left, top, w * cols, h * rows);
    context.fillStyle = self.colour('color');
    context.globalAlpha = 0.8;
    context.font = `${12 * self.zoom}px ${self.colour('font-family')}`;
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    name('rows', rows, (14 * size) / h, (text, at) => context.fillText(text, left - 6, top + at * h));
    context.textAlign = 'center';
    const widest = Math.max(12 * size, ...(names.cols ?? []).map((name) => context.measureText(name).width));
    const below = top + rows * h + 10 * size;
    name('cols', cols, (widest + 8 * size) / w, (text, at) => context.fillText(text, left + at * w, below));
    context.fillText(figure.across, left + (w * cols) / 2, top + rows * h + 28 * size);
    context.rotate(-Math.PI / 2);
    context.fillText(figure.down, -(top + (h * rows) / 2), 10 * size);
    place = { rows, cols, x: left, y: top, width: w * cols, height: h * rows };
    const [row, tall] = figure.row >= 0 ? [figure.row, h] : [0, h * rows]; // a cell, or a whole column
    if (figure.col >= 0) chosen.put(left + figure.col * w, top + row * h, w, tall);
    else chosen.hide();
    title.textContent = figure.text;
    bar.node.hidden = !figure.label; // where the title says how far it goes
    bar.update(figure.colours, low, high, figure.label);
  }
  return { node, draw };
}
