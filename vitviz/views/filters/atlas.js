// All filters side by side in one picture.

import { sheet } from '../../canvas/elements.js';

/** Filters, each scaled alone to [0, 1], in one picture of `across` a row; with the bounds of each. */
export function atlas(values, count, height, width, across, order) {
  const canvas = sheet(across * width, Math.ceil(count / across) * height);
  const context = canvas.getContext('2d');
  const image = context.createImageData(canvas.width, canvas.height);
  const size = height * width * 3;
  const ends = [];
  for (let i = 0; i < count; i++) {
    const start = order[i] * size;
    let low = Infinity;
    let high = -Infinity;
    for (let k = start; k < start + size; k++) {
      if (values[k] < low) low = values[k];
      if (values[k] > high) high = values[k];
    }
    ends.push([low, high]);
    const factor = high > low ? 255 / (high - low) : 0;
    const left = (i % across) * width;
    const top = Math.floor(i / across) * height;
    for (let k = start, y = 0; y < height; y++) {
      let to = ((top + y) * canvas.width + left) * 4;
      for (let x = 0; x < width; x++, k += 3, to += 4) {
        image.data[to] = (values[k] - low) * factor;
        image.data[to + 1] = (values[k + 1] - low) * factor;
        image.data[to + 2] = (values[k + 2] - low) * factor;
        image.data[to + 3] = 255;
      }
    }
  }
  context.putImageData(image, 0, 0);
  return { canvas, across, ends };
}
