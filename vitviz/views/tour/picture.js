// Step 1: the photograph, and the model's input pixel by pixel.

import { el, fit } from '../../canvas/elements.js';
import { number } from '../../canvas/numbers.js';
import { cells, outline } from '../../canvas/pointer.js';
import { t } from '../../canvas/words.js';
import { captioned, digits, pair, patchOf, sheetOf, stack } from './parts.js';

export const colourNames = () => [t('Red'), t('Green'), t('Blue')];

export const pictureStep = {
  build(self) {
    const upload = el('canvas', {
      role: 'img',
      'aria-label': t('The photograph, with the part that the model sees'),
    });
    const input = el('canvas');
    const plot = el('div', { class: 'vv-plot' }, input);
    const spot = outline(plot);
    const table = el('div');
    const size = () => ({
      rows: self.grid.rows * self.grid.patch[0],
      cols: self.grid.cols * self.grid.patch[1],
      x: 0,
      y: 0,
      width: ui.width,
      height: ui.height,
    });
    const ui = { width: 0, height: 0, pixel: null };
    const show = (pixel) => {
      const { rows, cols, width, height } = size();
      const { mean, std } = self.summary;
      ui.pixel = Math.min(pixel, rows * cols - 1);
      spot.put(
        (ui.pixel % cols) * (width / cols),
        Math.floor(ui.pixel / cols) * (height / rows),
        Math.max(3, width / cols),
        Math.max(3, height / rows),
      );
      const head = [
        t('Row {row}, column {col}', { row: Math.floor(ui.pixel / cols) + 1, col: (ui.pixel % cols) + 1 }),
        t('Byte'),
        t('(byte / 255 − mean) / deviation'),
        t('Number'),
      ];
      table.replaceChildren(
        sheetOf(
          head,
          colourNames().map((colour, c) => {
            const byte = self.data.bytes[ui.pixel * 4 + c];
            return {
              cells: [
                colour,
                String(byte),
                `(${byte} / 255 − ${number(mean[c], 8)}) / ${number(std[c], 8)}`,
                digits((byte / 255 - mean[c]) / std[c]),
              ],
            };
          }),
          'vv-wordy',
        ),
      );
    };
    cells(self, input, {
      place: () => ui.width && size(),
      label: () => t('The model’s input, pixel by pixel.'),
      name: (pixel) => {
        show(pixel);
        return colourNames()
          .map((colour, c) => `${colour} ${self.data.bytes[pixel * 4 + c]}`)
          .join(', ');
      },
      start: () => ui.pixel,
      hover: (pixel) => show(pixel),
      pick: (pixel) => show(pixel),
    });
    return {
      node: stack(
        pair(
          captioned(t('The photograph'), upload),
          el('span', { class: 'vv-arrow', 'aria-hidden': 'true', text: '→' }),
          captioned(t('What the model gets'), plot),
        ),
        table,
      ),
      ui,
      upload,
      input,
      show,
    };
  },
  async load(self, signal) {
    return { upload: await self.picture('upload', signal) };
  },
  draw(self, made) {
    const {
      upload: [w, h],
      box,
    } = self.photo;
    const {
      rows,
      cols,
      patch: [tall, wide],
    } = self.grid;
    const side = self.width >= 720;
    const width = Math.min(side ? 300 : 340, self.width);
    const limit = side ? self.width - width - 112 : self.width;
    const shown = Math.min(limit, (w / h) * ((width * rows * tall) / (cols * wide)), 520);
    const s = shown / w;
    const context = fit(made.upload, shown, h * s, self.density);
    const [l, top, r, b] = [
      Math.max(0, box[0] * s),
      Math.max(0, box[1] * s),
      Math.min(shown, box[2] * s),
      Math.min(h * s, box[3] * s),
    ];
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
    made.show(
      made.ui.pixel ??
        (Math.floor(patch / cols) * tall + (tall >> 1)) * cols * wide + (patch % cols) * wide + (wide >> 1),
    );
  },
};
