// Numbers over the image: the map used by all views without a script, and the base of other maps.

import { colourbar, painted, tinted } from './colours.js';
import { unpacked } from './data.js';
import { div, el, fit, say } from './elements.js';
import { patchName, placeName, t } from './i18n.js';
import { bounds, number } from './numbers.js';
import { framing } from './outliers.js';
import { chartBeside } from './plotly_chart.js';
import { cells, outline, rowByRow, tip } from './pointer.js';
import { drawMissing } from './removed_patches.js';
import { differs, labelled, still } from './shared_scale.js';

/** The first item with one number per patch, and its leading axes, each set by the control of that name. */
function over(self) {
  const [name, axes] = Object.entries(self.value.axes).find(
    ([, axes]) => axes.slice(-2).join(' ') === 'row col',
  ) ?? ['', []];
  return { name, leading: axes.slice(0, -2) };
}

/** Start of the visible map among the item's numbers. */
function offset(self, { name, leading }) {
  const { shape } = self.data[name];
  const at = leading.map((axis) => self.settings[axis] - self.control(axis).minimum);
  return at.reduce((sum, index, i) => sum * shape[i] + index, 0) * self.grid.rows * self.grid.cols;
}

/**
 * The setting for a query patch, if any: `at(cell)` is the setting's name and value, `held` the current
 * patch.
 */
function asker(self) {
  const found = self.value.controls.find(
    (one) => one.kind === 'query' || (one.kind === 'whole' && one.tokens),
  );
  if (!found) return null;
  const skip = found.kind === 'query' ? 0 : self.grid.prefix.length;
  const now = self.settings[found.name];
  const at = (cell) => [found.name, skip ? cell + skip : found.kind === 'query' ? String(cell) : cell];
  return { at, held: /^\d+$/.test(now) ? Number(now) - skip : -1 };
}

/** Both ends of the scale; symmetric about zero for signed numbers. */
function ends(self, values) {
  const [low, high] = bounds(values.filter(Number.isFinite));
  if (self.value.signed || differs(self)) return [-Math.max(-low, high), Math.max(-low, high)];
  return [self.settings.scale === 'zero' ? Math.min(0, low) : low, high];
}

/** The crop of the upload below a map, drawn on its own canvas because it rarely changes. */
export function ground(self) {
  const canvas = el('canvas');
  let drawn = '';
  function draw({ width, height }, grey = false) {
    const wanted = [self.key, width, height, self.density, grey].join('/');
    if (wanted === drawn) return;
    drawn = wanted;
    const { upload } = self.data; // may be smaller than the original image
    const [left, top, right, bottom] = self.photo.box.map(
      (edge) => (edge * upload.width) / self.photo.upload[0],
    );
    const context = fit(canvas, width, height, self.density);
    context.imageSmoothingQuality = 'high';
    context.filter = grey ? 'grayscale(1)' : 'none';
    context.drawImage(upload, left, top, right - left, bottom - top, 0, 0, width, height);
    drawMissing(self, context, rowByRow(self.grid, { width, height }));
    context.filter = 'none';
  }
  return { canvas, draw };
}

/**
 * A map over the crop of the upload. `show({values, low, high, colours, label, title})` draws it; `values`
 * has one number per patch, row by row, and NaN leaves a patch uncovered. `pixels`, RGB per patch, replaces
 * the colour scale. `about` extends the accessible name. `told(cell, value)` returns further tooltip lines,
 * `said(cell)` of the figure the first.
 * @param {any} self
 * @param {{told?: (cell: number, value: number) => string[], pick?: (cell: number) => void,
 *   hover?: (cell: number, event: any) => void, leave?: () => void}} [options]
 */
export function map(self, { told, pick, hover, leave } = {}) {
  const base = ground(self);
  const heat = el('canvas', { class: 'vv-heat' });
  const plot = div('vv-plot', base.canvas, heat);
  const spot = outline(plot);
  const held = outline(plot, 'vv-pinned');
  const framed = self.name === 'tokens' ? null : framing(self, plot);
  const bar = colourbar();
  const title = el('p', { class: 'vv-h' });
  const node = div('vv-stack vv-centred', title, plot, bar.node, framed?.node ?? '');
  spot.node.dataset.export = 'no';
  let size = { width: 1, height: 1 };
  /** @type {any} */
  let now = null;
  const place = () => ({ rows: self.grid.rows, cols: self.grid.cols, x: 0, y: 0, ...size });
  const put = (mark, cell) => mark.over(place(), cell);
  const name = (cell) => `${patchName(cell)}, ${placeName(self.grid, cell)}`;
  const said = (cell) => now.said?.(cell) ?? number(now.values[cell]);
  const lines = (cell) => [said(cell), name(cell), ...(told?.(cell, now.values[cell]) ?? [])];
  let pointed = -1; // the cell under the pointer
  const field = cells(self, heat, {
    place: () => now && place(),
    label: () => [title.textContent, now?.about, now?.label],
    name: (cell) => `${name(cell)}: ${said(cell)}`,
    start: () => 0,
    hover(cell, event) {
      hover?.(cell, event); // may show another map
      pointed = event.linked ? -1 : cell;
      put(spot, cell);
      bar.mark(now.values[cell]);
      tip.show(event, ...lines(cell));
    },
    leave() {
      pointed = -1;
      spot.hide();
      bar.mark(null);
      leave?.();
    },
    pick,
  });

  function show(figure) {
    now = figure;
    const { grid, width: room } = self;
    const aspect = (grid.cols * grid.patch[1]) / (grid.rows * grid.patch[0]);
    const width = Math.min(figure.room ?? room, aspect * self.tall);
    const height = width / aspect;
    size = { width, height };
    node.style.setProperty('--vv-drawn', `${width}px`);
    base.draw(size, figure.colours === 'balance'); // signed maps use colour, so the image is grey
    if (figure.pixels) painted(figure.pixels, figure.values, grid.rows, grid.cols, heat);
    else tinted(figure.values, grid.rows, grid.cols, figure.colours, figure.low, figure.high, 0, heat);
    bar.node.hidden = Boolean(figure.pixels);
    bar.node.classList.toggle('vv-unseen', !figure.values.some(Boolean)); // its title says that all are 0
    heat.style.cssText = `width:${width}px;height:${height}px;opacity:${self.settings.opacity ?? 0.72}`;
    bar.update(figure.colours, figure.low, figure.high, figure.label);
    say(title, figure.title);
    if (pointed >= 0) tip.write(lines(pointed)); // a click may have changed what is pointed at
    put(held, figure.held);
    framed?.draw(size, rowByRow(grid, size));
  }

  return { node, title, show, bar, heat, plot, at: field.at, put, size: () => size };
}

export default (slug) => ({
  title: slug,
  side: true,
  pictures: () => ['upload'],
  items: (self) => [over(self).name, ...(self.value.items.chart ? ['chart'] : [])],

  build(self) {
    const pick = (cell) => {
      const query = asker(self);
      if (query) self.set(...query.at(cell));
    };
    const drawn = map(self, { pick });
    self.figure.append(drawn.node);
    if (!self.value.items.chart) return { drawn };
    const beside = chartBeside(self);
    self.below.append(beside.node);
    return { drawn, beside };
  },

  draw(self) {
    const item = over(self);
    const start = offset(self, item);
    const count = self.grid.rows * self.grid.cols;
    const values = self.data[item.name].values.subarray(start, start + count);
    const chosen = item.leading.map((axis) => self.settings[axis]);
    const asked = [...chosen, self.settings.scale, differs(self)].join('/');
    const [low, high] = still(self, `${item.name}/${asked}`, ...ends(self, values));
    const colours = self.value.signed || differs(self) ? 'balance' : (self.settings.colormap ?? 'viridis');
    const [title, says] = [self.value.title, self.value.says[item.name]].map((text) => t(text));
    const [label, held] = [labelled(self, says), asker(self)?.held ?? -1];
    this.title = self.value.title;
    self.ui.drawn.show({ values, low, high, colours, label, title, held });
    const width = Math.max(160, self.across - 4);
    self.ui.beside?.draw(unpacked(self.data.chart), width, Math.min(0.62 * width, self.tall));
  },
});
