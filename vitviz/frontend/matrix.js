// A matrix as described by `vitviz/charts/chart.py`: coloured numbers with pointer, touch and keyboard
// support.

import { axesOf } from './chart.js';
import { colourbar, tinted } from './colours.js';
import { div, el, fit, say } from './elements.js';
import { light, whenLit } from './highlight.js';
import { t } from './i18n.js';
import { letters } from './line_labels.js';
import { cells, outline, plotted, tip } from './pointer.js';
import { frameRemoved } from './removed_patches.js';
import { still } from './shared_scale.js';

/** The tooltip lines of a cell. */
export function told(/** @type {Matrix} */ figure, row, col) {
  const at = (table) => table[row % table.length][col % table[0].length];
  const lines = figure.told.map(({ text, values }) => {
    const own = Object.entries(values).map(([name, one]) => [name, Array.isArray(one) ? at(one) : one]);
    return t(text, Object.fromEntries(own));
  });
  return lines[0] ? lines.filter(Boolean) : [];
}

/**
 * Makes a matrix. `draw(figure, {width, height, most})` draws it in this space, with cells of at most `most`
 * px. Its range only grows across the frames of a video. `pick` gets a clicked cell, `key` returns a cell's
 * highlight key, and `said` the tooltip of a number that the figure does not describe.
 * @param {any} self
 * @param {{pick?: (row: number, col: number) => void, key?: (row: number, col: number) => string,
 *   said?: (row: number, col: number, value: number) => string[]}} [options]
 */
export function matrix(self, { pick, key, said } = {}) {
  const title = el('p', { class: 'vv-h' });
  const { canvas, plot, spot } = plotted();
  const chosen = outline(plot, 'vv-pinned');
  const bar = colourbar();
  const notes = el('p', { class: 'vv-text' });
  const node = div('vv-stack vv-matrix', title, plot, bar.node, notes);
  /** @type {any} */
  let place = null;
  /** @type {any} */
  let now = null;
  let values = [];
  /** @type {(cell: number) => [number, number]} */
  const at = (cell) => [Math.floor(cell / place.cols), cell % place.cols];
  const lines = (cell) => said?.(...at(cell), values[cell]) ?? told(now, ...at(cell));
  cells(self, canvas, {
    place: () => place,
    label: () => (now ? [title.textContent, axesOf(now), t(now.scale.label)] : ''),
    name: (cell) => lines(cell).join(', '),
    hover(cell, event) {
      if (!lines(cell).length) return spot.hide();
      if (key && !event.linked) light(key(...at(cell)));
      spot.over(place, cell); // this cell, of several with the same key
      bar.mark(values[cell]);
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
      spot.over(place, lit && place ? values.findIndex((_, i) => key(...at(i)) === lit) : -1);
    });
  function draw(/** @type {Matrix} */ figure, { width, height, most = 60 }) {
    now = figure;
    const { scale } = figure;
    values = figure.values.flat().map((one) => one ?? NaN);
    const [rows, cols] = [figure.values.length, figure.values[0].length];
    const [along, down] = [t(figure.x_label), t(figure.y_label)];
    const names = { rows: figure.rows.map((one) => t(one)), cols: figure.cols.map((one) => t(one)) };
    /** Writes the names of an axis as far as they fit; empty names take no space. */
    const name = (axis, count, room, write) => {
      for (let i = 0, last = -Infinity; i < count; i++) {
        const text = names[axis][i] ?? String(i + 1);
        if (!text || i - last < room) continue;
        write(text, i + 0.5);
        last = i;
      }
    };
    const size = self.zoom;
    const longest = letters(names.rows) * 6.5 + (down ? 26 : 12); // beside the axis label
    const left = Math.max(46 * size, Math.min(longest * size, 0.4 * width));
    const top = 8;
    const bottom = (along ? 36 : 20) * size;
    const side = [Math.min(most, (width - left - 4) / cols), Math.min(most, (height - top - bottom) / rows)];
    const [w, h] = side.map((one) => Math.max(6, Math.min(one, 2.2 * Math.min(...side))));
    const context = fit(canvas, left + w * cols + 4, top + h * rows + bottom, self.density);
    const named = [figure.question, t(scale.label), along, down].join('/');
    const [low, high] = still(self, named, scale.low, scale.high);
    context.imageSmoothingEnabled = false;
    const image = tinted(Float32Array.from(values), rows, cols, scale.colours, low, high);
    context.drawImage(image, left, top, w * cols, h * rows);
    const cell = (at) => [left + (at % cols) * w, top + Math.floor(at / cols) * h, w, h];
    frameRemoved(context, (figure.removed ?? []).map(cell));
    context.fillStyle = self.colour('color');
    context.globalAlpha = 0.8;
    context.font = `${12 * self.zoom}px ${self.colour('font-family')}`;
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    name('rows', rows, (14 * size) / h, (text, at) => context.fillText(text, left - 6, top + at * h));
    context.textAlign = 'center';
    const widest = Math.max(12 * size, ...names.cols.map((name) => context.measureText(name).width));
    const below = top + rows * h + 10 * size;
    name('cols', cols, (widest + 8 * size) / w, (text, at) => context.fillText(text, left + at * w, below));
    context.fillText(along, left + (w * cols) / 2, top + rows * h + 28 * size);
    context.rotate(-Math.PI / 2);
    context.fillText(down, -(top + (h * rows) / 2), 10 * size);
    place = { rows, cols, x: left, y: top, width: w * cols, height: h * rows };
    const column = figure.column ?? -1;
    if (column >= 0) chosen.put(left + column * w, top, w, h * rows);
    else chosen.over(place, figure.chosen ?? -1);
    title.textContent = t(figure.title);
    say(notes, figure.notes.map((one) => t(one)).join(' '));
    bar.node.hidden = figure.unscaled;
    bar.update(scale.colours, low, high, t(scale.label));
  }
  return { node, draw };
}
