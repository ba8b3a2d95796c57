// Steps 4 and 5: the embedding of a patch, and the token in front.

import { tinted } from '../../frontend/colours.js';
import { div, el, figure, fit, pen, sheet, stack } from '../../frontend/elements.js';
import { patchName, placeName, t } from '../../frontend/i18n.js';
import { number } from '../../frontend/numbers.js';
import { cells, outline, plotted, tip } from '../../frontend/pointer.js';
import { board, strip } from './board.js';
import { flattened } from './input.js';
import { beside, captioned, digits, largest, pair, patchOf, summed, take, tokenTitle } from './parts.js';

export const embeddingStep = {
  build(self) {
    const from = board(self, { label: t('The image, cut into patches.'), pick: take(self) });
    const before = strip(self, { label: t('The patch as a row of numbers') });
    const after = strip(self, {
      label: t('Its embedding'),
      pick: self.summary.filters ? (i) => self.set('number', i) : undefined,
    });
    const tiles = [t('Patch'), t('Filter'), t('Product')].map((text) => {
      const canvas = el('canvas', { role: 'img', 'aria-label': text });
      return { canvas, node: figure(canvas, text) };
    });
    const sum = el('p', { class: 'vv-sum' });
    const why = el('p', { class: 'vv-h' });
    const sign = (text) => el('span', { class: 'vv-sign', text });
    const [one, other, product] = tiles.map((tile) => tile.node);
    const row = div('vv-tiles', one, sign('×'), other, sign('='), product);
    const worked = el('div', { class: 'vv-stack vv-worked', hidden: true }, why, row, sum);
    const strips = stack(before.node, el('p', { class: 'vv-sign', text: '↓ E' }), after.node);
    const node = stack(pair(captioned(t('Pick a patch'), from.node), strips), worked);
    return { node, from, before, after, tiles, worked, sum, why };
  },
  items: ({ summary }) => ['embedded', ...(summary.filters ? ['filter'] : [])],
  draw(self, made) {
    const room = beside(self);
    const { picture, rest } = room;
    const patch = patchOf(self);
    const { embedded } = self.data;
    const filter = self.data.filter?.values;
    const [, , width] = embedded.shape;
    const values = flattened(self, patch);
    const n = self.settings.number;
    const vector = embedded.values.subarray(patch * width, (patch + 1) * width);
    const [tall, wide] = self.grid.patch;
    made.from.draw({ width: picture, mark: patch });
    const count = values.length;
    const text = self.summary.stem
      ? t('The {count} numbers of the pixels there', { count })
      : t('The patch: {count} numbers', { count });
    const embeds = t('Its embedding: {count} numbers', { count: width });
    made.before.draw(values, { width: rest, text });
    made.after.draw(vector, { width: rest, mark: filter ? n : -1, text: embeds });
    made.worked.hidden = !filter;
    if (!filter) return;
    const weights = filter.subarray(0, count);
    const products = values.map((value, i) => value * weights[i]);
    const side = Math.min(120 * room.large, (room.width - 80) / 3, room.ceiling * 0.3);
    const rgb = (list) => {
      const most = largest(list);
      const out = sheet(wide, tall);
      const context = pen(out);
      const image = context.createImageData(wide, tall);
      for (let i = 0; i < wide * tall; i++)
        for (let c = 0; c < 4; c++)
          image.data[4 * i + c] = c === 3 ? 255 : 127.5 + (127.5 * list[3 * i + c]) / most;
      context.putImageData(image, 0, 0);
      return out;
    };
    const pixelSums = Float32Array.from(
      { length: wide * tall },
      (_, i) => products[3 * i] + products[3 * i + 1] + products[3 * i + 2],
    );
    const most = largest(pixelSums);
    const added = tinted(pixelSums, tall, wide, 'cividis', -most, most);
    [rgb(values), rgb(weights), added].forEach((image, i) => {
      const context = fit(made.tiles[i].canvas, side, (side * tall) / wide, self.density);
      context.imageSmoothingEnabled = false;
      context.drawImage(image, 0, 0, side, (side * tall) / wide);
    });
    made.why.textContent = t('Number {index} of the embedding', { index: n + 1 });
    made.sum.textContent = summed(products, filter[count]);
  },
};

export const tokenStep = {
  build(self) {
    const front = self.grid.prefix.map((name) => strip(self, { label: tokenTitle(name) }));
    const { canvas: all, plot, spot } = plotted();
    /** @type {{place: any}} */
    const ui = { place: null };
    const value = (cell) => self.data.embedded.values[cell];
    cells(self, all, {
      place: () => ui.place,
      label: () => t('The embeddings of all patches, one row each.'),
      name: (cell) => `${patchName(Math.floor(cell / ui.place.cols))}, ${digits(value(cell))}`,
      hover: (cell, event) => {
        const { cols, height, width, rows } = ui.place;
        spot.put(0, (Math.floor(cell / cols) * height) / rows, width, Math.max(3, height / rows));
        tip.show(
          event,
          patchName(Math.floor(cell / cols)),
          placeName(self.grid, Math.floor(cell / cols)),
          t('Number {index}: {value}', { index: (cell % cols) + 1, value: digits(value(cell)) }),
        );
      },
      leave: () => spot.hide(),
      pick: (cell) => take(self)(Math.floor(cell / ui.place.cols)),
    });
    const here = outline(plot);
    const label = el('p', { class: 'vv-striplabel' });
    const node = stack(...front.map((one) => one.node), div('vv-strip', label, plot));
    return { node, front, all, ui, here, label };
  },
  items: ({ grid }) => ['embedded', ...(grid.prefix.length ? ['front'] : [])],
  draw(self, made) {
    const { embedded, front } = self.data;
    const [, count, width] = embedded.shape;
    const { across: room, ceiling, large } = beside(self);
    const height = Math.min(Math.max(160, Math.min(420, count * 6)) * large, ceiling * 0.7);
    const most = largest(embedded.values.subarray(0, count * width));
    made.front.forEach((one, i) =>
      one.draw(front.values.subarray(i * width, (i + 1) * width), { width: room }),
    );
    const context = fit(made.all, room, height, self.density);
    context.imageSmoothingEnabled = room * self.density < width;
    context.drawImage(tinted(embedded.values, count, width, 'cividis', -most, most), 0, 0, room, height);
    made.ui.place = { rows: count, cols: width, x: 0, y: 0, width: room, height };
    made.here.put(0, (patchOf(self) * height) / count - 2, room, height / count + 4);
    made.label.textContent = t(
      'Patches 1 to {count}, a row of {width} numbers each; colours from {low} to {high}',
      { count, width, low: number(-most), high: number(most) },
    );
  },
};
