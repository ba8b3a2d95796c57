// The similarities as one picture of a pixel each, the ends of their scale, and the numbers along its sides.

import { tinted } from '../../canvas/colours.js';

/** The numbers patch by patch as a tile of the grid, each tile where its patch lies. */
export function tilesOf(values, { rows, cols }) {
  const count = rows * cols;
  const tiles = new Float32Array(values.length);
  for (let i = 0; i < count; i++) {
    const top = Math.floor(i / cols) * rows;
    const left = (i % cols) * cols;
    for (let r = 0; r < rows; r++) {
      const line = values.subarray(i * count + r * cols, i * count + (r + 1) * cols);
      tiles.set(line, (top + r) * cols * cols + left);
    }
  }
  return tiles;
}

/** The numbers as a picture of a pixel each: row patch, column patch; or a tile of the grid a patch. */
export function picture(self, form, low, high) {
  const { values } = self.data.similarity;
  const { rows, cols } = self.grid;
  const count = rows * cols;
  const name = [self.key, form, low, high].join('/');
  if (self.ui.name === name) return self.ui.picture;
  [self.ui.name, self.ui.picture] = [
    name,
    form === 'tiles'
      ? tinted(tilesOf(values, self.grid), rows * rows, cols * cols, 'viridis', low, high)
      : tinted(values, count, count, 'viridis', low, high),
  ];
  return self.ui.picture;
}

/** Both ends of the colours: of the film's whole training; of two checkpoints side by side, of both. */
export function ends(self) {
  if (self.settings.scale !== 'data') return [-1, 1];
  const beside = self.beside();
  const found = [self, ...beside].map(({ summary }) => [summary.minimum ?? -1, summary.maximum ?? 1]);
  const now = [Math.min(...found.map(([low]) => low)), Math.max(...found.map(([, high]) => high))];
  const apart = beside.filter(({ ui }) => ui.ends && ui.ends.join() !== now.join());
  for (const other of apart) requestAnimationFrame(() => other.draw());
  self.ui.ends = now;
  return now;
}

export function axis(context, labels, size, horizontal, unit, scale) {
  // numbers along one side, as many as find room
  context.textAlign = horizontal ? 'center' : 'right';
  context.textBaseline = horizontal ? 'top' : 'middle';
  const room = (horizontal ? 26 : 16) * scale;
  const every = Math.max(1, Math.ceil((room * labels) / size / unit) * unit);
  for (let i = 0; i < labels; i += every) {
    const at = ((i + 0.5) * size) / labels;
    horizontal ? context.fillText(String(i + 1), at, 0) : context.fillText(String(i + 1), 0, at);
  }
}
