// Step 1: the image, and the model's input pixel by pixel.

import { el, fit, stack } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { number } from '../../frontend/numbers.js';
import { cells, plotted, rowByRow } from '../../frontend/pointer.js';
import { drawCrop, rim } from '../../frontend/removed_patches.js';
import { beside, captioned, digits, pair, patchOf, plain, shapeOf, sheetOf } from './parts.js';

export const colourNames = () => [t('Red'), t('Green'), t('Blue')];

export const pictureStep = {
  build(self) {
    const upload = el('canvas', {
      role: 'img',
      'aria-label': t('The image, with the part that the model receives'),
    });
    const { canvas: input, plot, spot } = plotted();
    const table = el('div');
    const size = () => {
      const { rows, cols, tall, wide } = shapeOf(self);
      return { rows: rows * tall, cols: cols * wide, x: 0, y: 0, width: ui.width, height: ui.height };
    };
    const ui = { width: 0, height: 0, pixel: -1 };
    const show = (pixel) => {
      const { rows, cols } = size();
      const { mean, std } = self.summary;
      ui.pixel = Math.min(pixel, rows * cols - 1);
      const [x, y, w, h] = rowByRow(size(), size())(ui.pixel);
      spot.put(x, y, Math.max(3, w), Math.max(3, h));
      const head = [
        t('Row {row}, column {col}', { row: Math.floor(ui.pixel / cols) + 1, col: (ui.pixel % cols) + 1 }),
        t('Byte'),
        t('(byte / 255 − mean) / std'),
        t('Number'),
      ];
      const lines = colourNames().map((colour, c) => {
        const byte = self.data.bytes[ui.pixel * 4 + c];
        const formula = `(${byte} / 255 − ${number(mean[c], 8)}) / ${number(std[c], 8)}`;
        return [colour, String(byte), formula, digits((byte / 255 - mean[c]) / std[c])];
      });
      table.replaceChildren(sheetOf(head, plain(lines), 'vv-wordy'));
    };
    cells(self, input, {
      place: () => ui.width && size(),
      label: () => t('The model’s input, pixel by pixel.'),
      name: (pixel) => {
        const byte = (colour, c) => `${colour} ${self.data.bytes[pixel * 4 + c]}`;
        return colourNames().map(byte).join(', ');
      },
      start: () => ui.pixel,
      hover: show,
      pick: show,
    });
    const arrow = el('span', { class: 'vv-arrow', 'aria-hidden': 'true', text: '→' });
    const [before, after] = [captioned(t('The upload'), upload), captioned(t('The model’s input'), plot)];
    return { node: stack(pair(before, arrow, after), table), ui, upload, input, show };
  },
  pictures: ['upload'],
  draw(self, made) {
    const [w, h] = self.photo.upload;
    const { cols, tall, wide, aspect } = shapeOf(self);
    const { wide: side, width: room, ceiling, large, slide } = beside(self);
    const most = (side ? 300 : 340) * large;
    const width = Math.min(most, slide ? room * 0.42 : room, (ceiling * 0.7) / aspect);
    const limit = side ? room - width - 112 : room;
    const shown = Math.min(limit, (w / h) * width * aspect, 520 * large);
    const { context, crop } = drawCrop(self, made.upload, shown, (shown * h) / w);
    if (crop) rim(context, crop, '#fff', 2, 1);
    Object.assign(made.ui, { width, height: width * aspect });
    const on = fit(made.input, width, made.ui.height, self.density);
    on.imageSmoothingEnabled = false;
    on.drawImage(self.data.input, 0, 0, width, made.ui.height);
    const patch = patchOf(self);
    const [row, col] = [Math.floor(patch / cols) * tall + (tall >> 1), (patch % cols) * wide + (wide >> 1)];
    made.show(made.ui.pixel < 0 ? row * cols * wide + col : made.ui.pixel);
  },
};
