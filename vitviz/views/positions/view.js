// Cosine similarity of the position embeddings: tiles as in the paper's figure 7, or one matrix.

import { colourbar, tinted } from '../../frontend/colours.js';
import { div, el, fit } from '../../frontend/elements.js';
import { patchName, placeName, t } from '../../frontend/i18n.js';
import { leads } from '../../frontend/lesson_links.js';
import { fixed, number } from '../../frontend/numbers.js';
import { cells, outline, plotted, rowByRow, tip } from '../../frontend/pointer.js';

/** Rearranges the matrix into one tile per patch, each tile at its patch's position in the grid. */
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

/** The numbers as an image with one pixel each: row patch × column patch, or one tile per patch. */
function picture(self, form, low, high) {
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

/** Both ends of the scale: over the whole training history, and shared by two checkpoints side by side. */
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

function axis(context, labels, size, horizontal, unit, scale) {
  // numbers along one side, as many as fit
  context.textAlign = horizontal ? 'center' : 'right';
  context.textBaseline = horizontal ? 'top' : 'middle';
  const room = (horizontal ? 26 : 16) * scale;
  const every = Math.max(1, Math.ceil((room * labels) / size / unit) * unit);
  for (let i = 0; i < labels; i += every) {
    const at = ((i + 0.5) * size) / labels;
    horizontal ? context.fillText(String(i + 1), at, 0) : context.fillText(String(i + 1), 0, at);
  }
}

export default () => ({
  title: 'Similarity of position embeddings',
  keeps: true,
  reset: (self) => ([self.shown, self.pinned] = [null, false]),

  build(self) {
    [self.shown, self.pinned] = [null, false];
    const { canvas, plot, spot: hover } = plotted();
    const bar = colourbar();
    const { canvas: detail, plot: detailPlot, spot } = plotted();
    const own = outline(detailPlot, 'vv-pinned');
    const name = el('p', { class: 'vv-h' });
    const said = el('p', { class: 'vv-text' });
    const lead = t('Compare position embeddings in Perturbations:');
    const lesson = leads(self, lead, 'experiment', { kind: 'shuffle' });
    const beside = div('vv-stack vv-detail', name, detailPlot, said, bar.node, lesson);
    self.figure.append(div('vv-row vv-positions', plot, beside));
    const whole = (patch) => `${patchName(patch)}, ${placeName(self.grid, patch)}`;
    const tile = () => ({ rows: self.grid.rows, cols: self.grid.cols, x: 0, y: 0, ...self.ui.detailSize });
    const cosine = (a, b) => self.data.similarity.values[a * self.grid.rows * self.grid.cols + b];
    const within = (event, p, cell) => {
      // the tile's pixel under the pointer
      const box = canvas.getBoundingClientRect();
      const [left, top, w, h] = rowByRow(p, p)(cell);
      const x = (event.clientX - box.left - left) / w;
      const y = (event.clientY - box.top - top) / h;
      const clamp = (v, n) => Math.max(0, Math.min(n - 1, Math.floor(v * n)));
      return clamp(y, self.grid.rows) * self.grid.cols + clamp(x, self.grid.cols);
    };
    const point = (a, b, event) => {
      const value = cosine(a, b);
      const [one, other] = [a, b].map((patch) => `${patchName(patch)} (${placeName(self.grid, patch)})`);
      if (!self.pinned) this.show(self, a);
      spot.over(tile(), b);
      bar.mark(value);
      const said = t('cosine {value}', { value: fixed(value, 3) });
      tip.show(event, said, one, t('with {patch}', { patch: other }));
    };
    const leave = () => {
      hover.hide();
      spot.hide();
      bar.mark(null);
    };
    const matrix = () => self.settings.form === 'matrix';
    const pair = (cell) => [Math.floor(cell / self.ui.place.cols), cell % self.ui.place.cols];
    cells(self, canvas, {
      start: () => (matrix() ? self.shown * self.ui.place.cols : self.shown),
      place: () => self.ui.place,
      label: () => t('Cosine similarity of every position embedding with every other.'),
      name: (cell) => {
        const [a, b] = matrix() ? pair(cell) : [cell, cell];
        if (!matrix()) return whole(a);
        const value = fixed(cosine(a, b), 3);
        return `${whole(a)}, ${t('with {patch}', { patch: whole(b) })}: ${t('cosine {value}', { value })}`;
      },
      hover(cell, event) {
        const p = self.ui.place;
        if (matrix()) {
          hover.hide();
          const [a, b] = pair(cell);
          return point(a, b, event);
        }
        hover.over({ ...p, x: p.x - 1, y: p.y - 1 }, cell);
        point(cell, event.keyboard ? cell : within(event, p, cell), event);
      },
      leave,
      pick: (cell) => {
        const patch = matrix() ? pair(cell)[0] : cell;
        self.pinned = !(self.pinned && self.shown === patch);
        this.show(self, patch);
      },
      hold: (cell, other) => {
        self.pinned = other.pinned;
        this.show(self, matrix() ? pair(cell)[0] : cell);
      },
    });
    cells(self, detail, {
      start: () => self.shown,
      place: () => self.data && tile(),
      label: () => t('The tile of one patch, enlarged.'),
      name: (cell) => `${placeName(self.grid, cell)}: ${number(cosine(self.shown, cell))}`,
      hover: (cell, event) => point(self.shown, cell, event),
      leave,
    });
    return { canvas, bar, detail, name_: name, said, lesson, own };
  },

  items: () => ['similarity'],

  draw(self) {
    const { ui, grid, settings } = self;
    const { rows, cols } = grid;
    const form = settings.form || 'tiles';
    const [low, high] = ends(self);
    const source = picture(self, form, low, high);
    const pad = { left: (form === 'tiles' ? 40 : 52) * self.zoom, top: 8, bottom: 40 * self.zoom };
    const room = (self.wide ? self.width - self.detail - 28 : self.width) - pad.left;
    const count = rows * cols;
    const [across, down] = form === 'tiles' ? [cols, rows] : [count, count];
    const limit = self.tall - pad.bottom - pad.top;
    const unit = Math.min(room / across, limit / down);
    // whole device pixels for each tile
    const fine = form === 'tiles' ? Math.floor(unit * self.density) / self.density || unit : unit;
    const width = fine * across;
    const height = fine * down;
    const context = fit(ui.canvas, width + pad.left, height + pad.bottom + pad.top, self.density);
    context.imageSmoothingQuality = 'high';
    context.translate(0, pad.top);
    ui.place = { rows: down, cols: across, x: pad.left, y: pad.top, width, height };
    if (form === 'tiles') {
      const gap = fine > 14 ? 2 : 1;
      const inner = fine - gap;
      const whole = (Math.floor((inner * self.density) / cols) * cols) / self.density;
      const side = whole > inner * 0.87 ? whole : inner;
      const [tw, th] = rows > cols ? [(side * cols) / rows, side] : [side, (side * rows) / cols];
      context.imageSmoothingEnabled = tw * self.density < cols || th * self.density < rows;
      for (let i = 0; i < count; i++) {
        const [row, col] = [Math.floor(i / cols), i % cols];
        const [x, y] = [pad.left + col * fine, row * fine];
        context.drawImage(source, col * cols, row * rows, cols, rows, x, y, tw, th);
      }
    } else {
      context.imageSmoothingEnabled = width * self.density < count;
      context.drawImage(source, pad.left, 0, width, height);
    }
    context.fillStyle = self.colour('color');
    context.font = `${12 * self.zoom}px ${self.colour('font-family')}`;
    context.globalAlpha = 0.8;
    context.save();
    context.translate(pad.left - 6, 0);
    // a matrix is numbered at the starts of the grid's rows
    axis(context, down, height, false, form === 'tiles' ? 1 : cols, self.zoom);
    context.restore();
    context.save();
    context.translate(pad.left, height + 5);
    axis(context, across, width, true, form === 'tiles' ? 1 : cols, self.zoom);
    context.restore();
    context.font = `${13 * self.zoom}px ${self.colour('font-family')}`;
    context.textAlign = 'center';
    context.textBaseline = 'bottom';
    const [along, up] =
      form === 'tiles'
        ? [t('Input patch column'), t('Input patch row')]
        : [t('Input patch number'), t('Input patch number')];
    context.fillText(along, pad.left + width / 2, height + pad.bottom);
    context.rotate(-Math.PI / 2);
    context.textBaseline = 'top';
    context.fillText(up, -height / 2, 0);
    ui.bar.update('viridis', low, high, t('Cosine similarity'));
    ui.said.textContent = t(
      'The bright cell is the patch itself. Point at the image to compare, click to lock a patch.',
    );
    this.show(self, self.shown ?? Math.floor(rows / 2) * cols + Math.floor(cols / 2), true);
  },

  /** One patch's tile, enlarged. */
  show(self, patch, anew = false) {
    if (patch === self.shown && !anew) return;
    self.shown = patch;
    const { ui } = self;
    const { rows, cols } = self.grid;
    const count = rows * cols;
    const side = self.wide
      ? Math.max(120, Math.min(self.detail, self.tall - 190 * self.zoom - ui.lesson.offsetHeight))
      : Math.min(150, self.width * 0.4);
    const unit = side / Math.max(rows, cols);
    const [width, height] = [unit * cols, unit * rows];
    const context = fit(ui.detail, width, height, self.density);
    ui.tile = tinted(self.data.similarity.values, rows, cols, 'viridis', ...ui.ends, patch * count, ui.tile);
    context.imageSmoothingEnabled = false;
    context.drawImage(ui.tile, 0, 0, width, height);
    ui.detailSize = { width, height };
    ui.own.over({ rows, cols, width, height }, patch);
    ui.name_.textContent = `${patchName(patch)}: ${placeName(self.grid, patch)}`;
  },
});
