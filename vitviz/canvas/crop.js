// The upload with the part that the model does not see veiled.

import { fit } from './elements.js';

/**
 * Draws self.data.upload at `width` x `height` CSS pixels and veils what lies outside of the crop. Gives the
 * context, and the crop's [x, y, width, height] in it; null where the model sees all of the picture.
 */
export function drawCrop(self, canvas, width, height) {
  const { upload, box } = self.photo;
  const [left, top, right, bottom] = box.map((edge) => (edge * width) / upload[0]);
  const [x, y] = [Math.max(0, left), Math.max(0, top)];
  const crop = [x, y, Math.min(width, right) - x, Math.min(height, bottom) - y];
  const context = fit(canvas, width, height, self.density);
  context.imageSmoothingQuality = 'high';
  context.drawImage(self.data.upload, 0, 0, width, height);
  if (crop[2] > width - 1 && crop[3] > height - 1) return { context, crop: null };
  context.fillStyle = self.colour('--vv-paper');
  context.globalAlpha = 0.68;
  context.beginPath();
  context.rect(0, 0, width, height);
  context.rect(...crop);
  context.fill('evenodd');
  context.globalAlpha = 1;
  return { context, crop };
}

/** The crop's edge, so far inside of it. */
export function rim(context, crop, colour, line, inside) {
  const [x, y, width, height] = crop;
  context.strokeStyle = colour;
  context.lineWidth = line;
  context.strokeRect(x + inside, y + inside, width - 2 * inside, height - 2 * inside);
}
