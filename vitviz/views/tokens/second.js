// A second image beside the first: similarity of patches across both images, in both directions.

import { painted, tinted } from '../../frontend/colours.js';
import { div, el, fit, pen, sheet } from '../../frontend/elements.js';
import { patchName, placeName, t } from '../../frontend/i18n.js';
import { number } from '../../frontend/numbers.js';
import { cells, outline, tip } from '../../frontend/pointer.js';
import { scale, sizeOf, skipOf } from './tokens.js';

/** True if both images are coloured by one shared basis. */
export const shared = ({ settings: { show, basis, other } }) =>
  show === 'components' && basis === 'photo' && Boolean(other);

/** The cosines of every patch with one patch of the second image; null if not fetched. */
export function facing(self, cell) {
  const { across, facing: line } = self.data;
  const count = sizeOf(self);
  if (across) return Float32Array.from({ length: count }, (_, i) => across.values[i * count + cell]);
  return line && cell === self.settings.partner ? line.values : null;
}

/** The second image and its picker; `paint` redraws the first image's map. */
export function second(self, paint) {
  const chosen = () => {
    self.facing = null;
    self.set('other', choice.value);
  };
  const choice = el('select', { 'aria-label': t('Second image'), onchange: chosen });
  const base = el('canvas');
  const heat = el('canvas', { class: 'vv-heat' });
  const plot = div('vv-plot', base, heat);
  const spot = outline(plot);
  const held = outline(plot, 'vv-pinned');
  spot.node.dataset.export = 'no';
  const said = el('p', { class: 'vv-text' });
  const named = el('span', { class: 'vv-label', text: t('Second image') });
  const label = el('label', { class: 'vv-row' }, named, choice);
  const node = div('vv-stack vv-away', label, plot, said);
  let size = { width: 1, height: 1 };
  let drawn = '';
  let [before, last] = ['', ''];
  const place = () => ({ rows: self.grid.rows, cols: self.grid.cols, x: 0, y: 0, ...size });
  const over = (opacity) => {
    heat.style.cssText = `width:${size.width}px;height:${size.height}px;opacity:${opacity}`;
  };
  const name = (cell) => `${patchName(cell)}, ${placeName(self.grid, cell)}`;
  /** @type {any} */
  let came = null; // the locked patch when the pointer entered
  cells(self, heat, {
    place: () => self.settings.show === 'similarity' && self.data?.photo && place(),
    label: () => t('Second image'),
    name,
    start: () => self.settings.partner,
    hover(cell, event) {
      spot.over(place(), cell);
      tip.show(event, name(cell), t('Click to lock'));
      if (came === null) came = { facing: self.facing };
      if (came.facing !== null && !event.keyboard) return;
      if (!facing(self, cell)) return;
      self.facing = cell;
      paint();
    },
    leave() {
      spot.hide();
      if (came && self.facing !== came.facing) {
        self.facing = came.facing;
        paint();
      }
      came = null;
    },
    pick(cell) {
      const again = came?.facing === cell;
      self.facing = again ? null : cell;
      came = { facing: self.facing };
      self.set('partner', cell);
    },
  });

  /** Lists the choices: none, the samples, and the previous image. */
  function offer() {
    const { upload } = self.value;
    if (upload !== last) [before, last] = [last, upload];
    const known = self.summary.samples.map(([one, title]) => [one, t(title)]);
    const old = before || (known.some(([one]) => one === self.settings.other) ? '' : self.settings.other);
    const all = [['', t('None')], ...known, ...(old ? [[old, t('Previous image')]] : [])];
    choice.replaceChildren(...all.map(([value, text]) => el('option', { value, text })));
    choice.value = self.settings.other;
  }

  /** Draws the image as high as fits; returns the used height. */
  function draw({ width, height }) {
    offer();
    const { photo } = self.data;
    plot.hidden = said.hidden = !photo?.values.length;
    if (plot.hidden) return node.offsetHeight + 8;
    const [tall, wide] = photo.shape;
    const side = Math.min(width, (0.42 * height * wide) / tall, 340);
    size = { width: side, height: (side * tall) / wide };
    const goal = [self.key, self.settings.other, side, self.density].join('/');
    if (goal !== drawn) {
      drawn = goal;
      const whole = sheet(wide, tall);
      const pixels = new Uint8ClampedArray(wide * tall * 4).fill(255);
      for (let i = 0; i < wide * tall; i++) pixels.set(photo.values.subarray(3 * i, 3 * i + 3), 4 * i);
      pen(whole).putImageData(new ImageData(pixels, wide, tall), 0, 0);
      fit(base, size.width, size.height, self.density).drawImage(whole, 0, 0, size.width, size.height);
    }
    return node.offsetHeight + 8;
  }

  /** Shows the similarity of the second image's patches to the query. */
  function show() {
    if (plot.hidden) return;
    const cell = self.query - skipOf(self);
    const { across } = self.data;
    const count = sizeOf(self);
    const asks = self.facing === null && cell >= 0 && across;
    over(asks ? self.settings.opacity : 0);
    held.over(place(), self.facing ?? -1);
    said.textContent = t('Point at a patch to see the similar patches of the first image.');
    if (!asks) return;
    const { low, high, colours } = scale(self);
    const line = across.values.subarray(cell * count, (cell + 1) * count);
    tinted(line, self.grid.rows, self.grid.cols, colours, low, high, 0, heat);
    const best = line.reduce((found, value, i) => (value > line[found] ? i : found), 0);
    said.textContent = t('Most similar: {patch}, {value}', { patch: name(best), value: number(line[best]) });
  }

  /** Shows the second image's principal components, in the colours of the first. */
  function colour() {
    const { data, grid, settings } = self;
    const count = sizeOf(self);
    const one = new Float32Array(count);
    painted(data.other_tints.values, one, grid.rows, grid.cols, heat, 3 * settings.depth * count);
    over(settings.opacity);
    held.hide();
    said.textContent = t('Both images share one basis, so their colours are comparable.');
  }

  return { node, draw, show, colour };
}
