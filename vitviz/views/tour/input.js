// Steps 1 to 5: the picture, its patches, their numbers, their embedding, and the token in front.

import { table, tinted } from '../../canvas/colours.js';
import { picture } from '../../canvas/data.js';
import { el, fit, sheet } from '../../canvas/elements.js';
import { patchName, placeName } from '../../canvas/names.js';
import { number, total } from '../../canvas/numbers.js';
import { cells, outline } from '../../canvas/pointer.js';
import { tip } from '../../canvas/tip.js';
import { t } from '../../canvas/words.js';
import { beside, board, captioned, digits, folded, largest, pair, patchOf, sheetOf, stack, strip, take, tokenTitle } from './parts.js';

/** The numbers that the model reads of one patch: row by row, red, green and blue of each pixel. */
export function flattened(self, patch) {
  const { grid: { cols, patch: [tall, wide] }, summary: { mean, std }, data: { bytes } } = self, across = cols * wide, out = new Float32Array(tall * wide * 3);
  const top = Math.floor(patch / cols) * tall, left = (patch % cols) * wide;
  for (let i = 0; i < out.length; i++) {
    const channel = i % 3, pixel = (i - channel) / 3;
    out[i] = (bytes[((top + Math.floor(pixel / wide)) * across + left + (pixel % wide)) * 4 + channel] / 255 - mean[channel]) / std[channel];
  }
  return out;
}

export const colourNames = () => [t('Red'), t('Green'), t('Blue')];

export const pictureStep = {
  build(self) {
    const upload = el('canvas', { role: 'img', 'aria-label': t('The photograph, with the part that the model sees') }), input = el('canvas'), plot = el('div', { class: 'vv-plot' }, input), spot = outline(plot), table = el('div');
    const size = () => ({ rows: self.grid.rows * self.grid.patch[0], cols: self.grid.cols * self.grid.patch[1], x: 0, y: 0, width: ui.width, height: ui.height });
    const ui = { width: 0, height: 0, pixel: null };
    const show = (pixel) => {
      const { rows, cols, width, height } = size(), { mean, std } = self.summary;
      ui.pixel = Math.min(pixel, rows * cols - 1);
      spot.put((ui.pixel % cols) * (width / cols), Math.floor(ui.pixel / cols) * (height / rows), Math.max(3, width / cols), Math.max(3, height / rows));
      const head = [t('Row {row}, column {col}', { row: Math.floor(ui.pixel / cols) + 1, col: (ui.pixel % cols) + 1 }), t('Byte'), t('(byte / 255 − mean) / deviation'), t('Number')];
      table.replaceChildren(sheetOf(head, colourNames().map((colour, c) => {
        const byte = self.data.bytes[ui.pixel * 4 + c];
        return { cells: [colour, String(byte), `(${byte} / 255 − ${number(mean[c], 8)}) / ${number(std[c], 8)}`, digits((byte / 255 - mean[c]) / std[c])] };
      }), 'vv-wordy'));
    };
    cells(self, input, {
      place: () => ui.width && size(),
      label: () => t('The model’s input, pixel by pixel.'),
      name: (pixel) => { show(pixel); return colourNames().map((colour, c) => `${colour} ${self.data.bytes[pixel * 4 + c]}`).join(', '); },
      start: () => ui.pixel,
      hover: (pixel) => show(pixel),
      pick: (pixel) => show(pixel),
    });
    return { node: stack(pair(captioned(t('The photograph'), upload), el('span', { class: 'vv-arrow', 'aria-hidden': 'true', text: '→' }), captioned(t('What the model gets'), plot)), table), ui, upload, input, show };
  },
  async load(self, signal) { return { upload: await self.picture('upload', signal) }; },
  draw(self, made) {
    const { upload: [w, h], box } = self.photo, { rows, cols, patch: [tall, wide] } = self.grid, side = self.width >= 720;
    const width = Math.min(side ? 300 : 340, self.width), limit = side ? self.width - width - 112 : self.width, shown = Math.min(limit, (w / h) * ((width * rows * tall) / (cols * wide)), 520), s = shown / w;
    const context = fit(made.upload, shown, h * s, self.density), [l, top, r, b] = [Math.max(0, box[0] * s), Math.max(0, box[1] * s), Math.min(shown, box[2] * s), Math.min(h * s, box[3] * s)];
    context.imageSmoothingQuality = 'high';
    context.drawImage(self.data.upload, 0, 0, shown, h * s);
    if (r - l < shown - 1 || b - top < h * s - 1) {
      context.fillStyle = self.colour('--vv-paper');
      context.globalAlpha = 0.68;
      context.beginPath();
      context.rect(0, 0, shown, h * s);
      context.rect(l, top, r - l, b - top);
      context.fill('evenodd');
      context.globalAlpha = 1;
      context.strokeStyle = '#fff';
      context.lineWidth = 2;
      context.strokeRect(l + 1, top + 1, r - l - 2, b - top - 2);
    }
    Object.assign(made.ui, { width, height: (width * rows * tall) / (cols * wide) });
    const on = fit(made.input, width, made.ui.height, self.density);
    on.imageSmoothingEnabled = false;
    on.drawImage(self.data.picture, 0, 0, width, made.ui.height);
    const patch = patchOf(self);
    made.show(made.ui.pixel ?? (Math.floor(patch / cols) * tall + (tall >> 1)) * cols * wide + (patch % cols) * wide + (wide >> 1));
  },
};

export const patchesStep = {
  build(self) {
    const cut = board(self, { label: t('The picture, cut into patches.'), pick: take(self) }), line = el('canvas', { role: 'img', 'aria-label': t('The patches in the order in which they are read') }), linePlot = el('div', { class: 'vv-plot' }, line), here = outline(linePlot, 'vv-pinned'), text = el('p', { class: 'vv-text' });
    return { node: pair(captioned(t('Cut apart'), cut.node), captioned(t('Read row by row'), linePlot, text)), cut, line, here, text };
  },
  draw(self, made) {
    const { rows, cols, patch: [tall, wide] } = self.grid, { picture, rest } = beside(self, 380), count = rows * cols, patch = patchOf(self);
    made.cut.draw({ width: picture, gap: Math.min(4, (picture / cols) * 0.16), mark: patch });
    const area = Math.min(rest, 640), across = Math.min(count, Math.max(cols + 3, Math.floor(Math.sqrt((count * area) / 180)))), pitch = area / across, size = pitch * 0.82, down = (pitch * tall) / wide;
    const context = fit(made.line, area, Math.ceil(count / across) * down, self.density), at = (i) => [(i % across) * pitch, Math.floor(i / across) * down, size, (size * tall) / wide];
    context.imageSmoothingEnabled = false;
    for (let i = 0; i < count; i++) context.drawImage(self.data.picture, (i % cols) * wide, Math.floor(i / cols) * tall, wide, tall, ...at(i));
    made.here.put(...at(patch));
    made.text.textContent = `${patchName(self.grid, patch)}: ${placeName(self.grid, patch)}.`;
  },
};

export const flattenStep = {
  build(self) {
    const from = board(self, { label: t('The picture, cut into patches.'), pick: take(self) }), big = el('canvas', { role: 'img', 'aria-label': t('The picked patch') }), plot = el('div', { class: 'vv-plot' }, big), spot = outline(plot), start = el('p', { class: 'vv-numbers' });
    const colour = (i) => { const pixel = Math.floor(i / 3), wide = self.grid.patch[1]; return t('{colour} of the pixel in row {row}, column {col}', { colour: colourNames()[i % 3], row: Math.floor(pixel / wide) + 1, col: (pixel % wide) + 1 }); };
    const touched = (i) => {
      const [tall, wide] = self.grid.patch, pixel = Math.floor(i / 3), [w, h] = [made.side / wide, (made.side * tall) / wide / tall];
      i < 0 ? spot.hide() : spot.put((pixel % wide) * w, Math.floor(pixel / wide) * h, w, h);
    };
    const row = strip(self, { label: t('The patch as a row of numbers'), touched, extra: colour });
    const all = folded(t('All numbers'), () => el('p', { class: 'vv-numbers', text: Array.from(made.values, digits).join('  ') }));
    const made = { node: stack(pair(captioned(t('Pick a patch'), from.node), captioned(t('Its pixels'), plot)), row.node, start, all.node), from, big, row, start, all, side: 0, values: [] };
    return made;
  },
  draw(self, made) {
    const [tall, wide] = self.grid.patch, { cols } = self.grid, { picture } = beside(self), patch = patchOf(self), values = flattened(self, patch);
    made.values = values;
    made.side = Math.min(picture, (picture * wide) / tall);
    made.from.draw({ width: picture, mark: patch });
    const context = fit(made.big, made.side, (made.side * tall) / wide, self.density);
    context.imageSmoothingEnabled = false;
    context.drawImage(self.data.picture, (patch % cols) * wide, Math.floor(patch / cols) * tall, wide, tall, 0, 0, made.side, (made.side * tall) / wide);
    made.row.draw(values, { width: Math.min(self.width, 1000), text: t('{patch} as a row of {count} numbers', { patch: patchName(self.grid, patch), count: values.length }) });
    made.start.textContent = Array.from(values.slice(0, 9), digits).join('  ') + ' …';
    made.all.fill();
  },
};

export const embeddingStep = {
  build(self) {
    const from = board(self, { label: t('The picture, cut into patches.'), pick: take(self) });
    const before = strip(self, { label: t('The patch as a row of numbers') }), after = strip(self, { label: t('Its embedding'), pick: self.summary.filters ? (i) => self.set('number', i) : undefined });
    const tiles = [t('Patch'), t('Filter'), t('Product')].map((text) => { const canvas = el('canvas', { role: 'img', 'aria-label': text }); return { canvas, node: el('figure', {}, el('div', { class: 'vv-plot' }, canvas), el('figcaption', { text })) }; });
    const sum = el('p', { class: 'vv-sum' }), why = el('p', { class: 'vv-h' });
    const worked = el('div', { class: 'vv-stack vv-worked', hidden: true }, why, el('div', { class: 'vv-tiles' }, tiles[0].node, el('span', { class: 'vv-sign', text: '×' }), tiles[1].node, el('span', { class: 'vv-sign', text: '=' }), tiles[2].node), sum);
    return { node: stack(pair(captioned(t('Pick a patch'), from.node), stack(before.node, el('p', { class: 'vv-sign', text: '↓ E' }), after.node)), worked), from, before, after, tiles, worked, sum, why };
  },
  async load(self, signal) {
    const [embedded, filter] = await Promise.all([self.get('embedded', signal), self.summary.filters ? self.get('filter', signal) : null]);
    return { embedded, filter: filter?.values };
  },
  draw(self, made) {
    const { picture, rest } = beside(self), patch = patchOf(self), { embedded, filter } = self.data, [, , width] = embedded.shape, values = flattened(self, patch), n = self.settings.number;
    const vector = embedded.values.subarray(patch * width, (patch + 1) * width), [tall, wide] = self.grid.patch;
    made.from.draw({ width: picture, mark: patch });
    made.before.draw(values, { width: rest, text: self.summary.stem ? t('The {count} numbers of the pixels there', { count: values.length }) : t('The patch: {count} numbers', { count: values.length }) });
    made.after.draw(vector, { width: rest, mark: filter ? n : -1, text: t('Its embedding: {count} numbers', { count: width }) });
    made.worked.hidden = !filter;
    if (!filter) return;
    const weights = filter.subarray(0, values.length), bias = filter[values.length], products = values.map((value, i) => value * weights[i]), side = Math.min(120, (self.width - 80) / 3);
    const rgb = (list) => {
      const most = largest(list), out = sheet(wide, tall), context = out.getContext('2d'), image = context.createImageData(wide, tall);
      for (let i = 0; i < wide * tall; i++) for (let c = 0; c < 4; c++) image.data[4 * i + c] = c === 3 ? 255 : 127.5 + (127.5 * list[3 * i + c]) / most;
      context.putImageData(image, 0, 0);
      return out;
    };
    const pixelSums = Float32Array.from({ length: wide * tall }, (_, i) => products[3 * i] + products[3 * i + 1] + products[3 * i + 2]);
    [rgb(values), rgb(weights), tinted(pixelSums, tall, wide, 'cividis', -largest(pixelSums), largest(pixelSums))].forEach((image, i) => {
      const context = fit(made.tiles[i].canvas, side, (side * tall) / wide, self.density);
      context.imageSmoothingEnabled = false;
      context.drawImage(image, 0, 0, side, (side * tall) / wide);
    });
    made.why.textContent = t('Number {index} of the embedding', { index: n + 1 });
    const total = products.reduce((a, b) => a + b, 0);
    made.sum.textContent = `${t('sum of {count} products', { count: values.length })} ${digits(total)} + ${t('bias')} ${digits(bias)} = ${digits(total + bias)}`;
  },
};

export const tokenStep = {
  build(self) {
    const front = self.grid.prefix.map((name) => strip(self, { label: tokenTitle(name) })), all = el('canvas'), plot = el('div', { class: 'vv-plot' }, all), spot = outline(plot), ui = { place: null };
    const value = (cell) => self.data.embedded.values[cell];
    cells(self, all, {
      place: () => ui.place,
      label: () => t('The embeddings of all patches: a row for each.'),
      name: (cell) => `${patchName(self.grid, Math.floor(cell / ui.place.cols))}, ${digits(value(cell))}`,
      hover: (cell, event) => {
        const { cols, height, width, rows } = ui.place;
        spot.put(0, (Math.floor(cell / cols) * height) / rows, width, Math.max(3, height / rows));
        tip.show(event, patchName(self.grid, Math.floor(cell / cols)), placeName(self.grid, Math.floor(cell / cols)), t('Number {index}: {value}', { index: (cell % cols) + 1, value: digits(value(cell)) }));
      },
      leave: () => spot.hide(),
      pick: (cell) => take(self)(Math.floor(cell / ui.place.cols)),
    });
    const here = outline(plot), label = el('p', { class: 'vv-striplabel' });
    return { node: stack(...front.map((one) => one.node), el('div', { class: 'vv-strip' }, label, plot)), front, all, ui, here, label };
  },
  async load(self, signal) {
    const [embedded, front] = await Promise.all([self.get('embedded', signal), self.grid.prefix.length ? self.get('front', signal) : null]);
    return { embedded, front };
  },
  draw(self, made) {
    const { embedded, front } = self.data, [, count, width] = embedded.shape, room = Math.min(self.width, 900), height = Math.max(160, Math.min(420, count * 6)), most = largest(embedded.values.subarray(0, count * width));
    made.front.forEach((one, i) => one.draw(front.values.subarray(i * width, (i + 1) * width), { width: room }));
    const context = fit(made.all, room, height, self.density);
    context.imageSmoothingEnabled = room * self.density < width;
    context.drawImage(tinted(embedded.values, count, width, 'cividis', -most, most), 0, 0, room, height);
    made.ui.place = { rows: count, cols: width, x: 0, y: 0, width: room, height };
    made.here.put(0, (patchOf(self) * height) / count - 2, room, height / count + 4);
    made.label.textContent = t('Patches 1 to {count}, a row of {width} numbers each; colours from {low} to {high}', { count, width, low: number(-most), high: number(most) });
  },
};
