// Parts of the image that the model did not see: the upload outside the crop, veiled; removed patches, framed
// and with their replacement; the input with patches removed or moved; ablated heads in grids of heads.

import { fit } from './elements.js';

/**
 * Draws self.data.upload at `width` x `height` CSS pixels and veils the area outside the crop. Returns the
 * context, and the crop as [x, y, width, height]; null if the model sees the whole image.
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
  context.rect(crop[0], crop[1], crop[2], crop[3]);
  context.fill('evenodd');
  context.globalAlpha = 1;
  return { context, crop };
}

/** The crop's edge, with an inset. */
export function rim(context, crop, colour, line, inside) {
  const [x, y, width, height] = crop;
  context.strokeStyle = colour;
  context.lineWidth = line;
  context.strokeRect(x + inside, y + inside, width - 2 * inside, height - 2 * inside);
}

/** Hatches an empty position. */
function hatch(self, context, x, y, width, height) {
  context.save();
  context.fillStyle = self.colour('--vv-paper');
  context.fillRect(x, y, width, height);
  context.strokeStyle = self.colour('color');
  context.globalAlpha = 0.4;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x, y + height);
  context.lineTo(x + width, y);
  context.stroke();
  context.restore();
}

/** True if patches are replaced by other content in the model's input. */
export const paintedOver = ({ value: { missing } }) =>
  Boolean(missing?.patches.length) && missing.as !== 'dropped';

/** True if a patch was dropped from the sequence: it neither attends nor is attended to. */
export const leftOut = ({ value: { missing } }, cell) =>
  missing?.as === 'dropped' && missing.patches.includes(cell);

/** The nearest patch in the model's input, by rows and columns. */
export function nearestShown(self, cell) {
  const { rows, cols } = self.grid;
  const far = (other) =>
    Math.hypot(Math.floor(other / cols) - Math.floor(cell / cols), (other % cols) - (cell % cols));
  const shown = Array.from({ length: rows * cols }, (_, i) => i).filter((i) => !leftOut(self, i));
  return shown.reduce((best, other) => (far(other) < far(best) ? other : best), shown[0]);
}

/** Draws the removed patches' replacement over the upload, each patch at `box(cell)`; hatched if dropped. */
export function drawMissing(self, context, box) {
  const { cols, patch } = self.grid;
  const [tall, wide] = patch;
  for (const cell of self.value.missing?.patches ?? []) {
    const place = box(cell);
    const [left, top] = [(cell % cols) * wide, Math.floor(cell / cols) * tall];
    if (paintedOver(self)) context.drawImage(self.data.input, left, top, wide, tall, ...place);
    else hatch(self, context, ...place);
  }
}

/** Frames boxes of removed parts, [x, y, width, height], with dashes. */
export function frameRemoved(context, boxes) {
  context.save();
  context.setLineDash([4, 3]);
  for (const [line, colour] of [
    [3, 'rgb(255 255 255 / .75)'],
    [1.5, 'rgb(0 0 0 / .85)'],
  ])
    for (const box of boxes) rim(context, box, colour, line, 1);
  context.restore();
}

/** Frames the removed patches, on a canvas above a map. */
export const frameMissing = (self, context, box) =>
  frameRemoved(context, (self.value.missing?.patches ?? []).map(box));

/** The ablated heads, {layer, head}, counted from 1. */
export const removedHeads = ({ value: { missing } }) =>
  (missing?.heads ?? []).map(([layer, head]) => ({ layer, head }));

/** True if a head, counted from 1, is ablated. */
export const ablated = (self, { layer, head }) =>
  removedHeads(self).some((one) => one.layer === layer && one.head === head);

/**
 * Draws the image `width` CSS pixels wide. `order` is the source patch of each position; the positions in
 * `gone` are hatched, or black.
 */
export function pieces(self, canvas, { picture, width, order = [], gone = [], black = false }) {
  const { cols, patch } = self.grid;
  const unit = width / picture.width;
  const [tall, wide] = patch.map((pixels) => pixels * unit);
  const context = fit(canvas, width, picture.height * unit, self.density);
  /** @type {(place: number) => [number, number]} */
  const corner = (place) => [(place % cols) * wide, Math.floor(place / cols) * tall];
  context.imageSmoothingEnabled = unit * self.density < 1;
  context.drawImage(picture, 0, 0, width, picture.height * unit); // includes the margin outside all patches
  order.forEach((from, place) => {
    const [x, y] = [(from % cols) * patch[1], Math.floor(from / cols) * patch[0]];
    context.drawImage(picture, x, y, patch[1], patch[0], ...corner(place), wide, tall);
  });
  for (const place of gone) {
    if (black) context.fillRect(...corner(place), wide, tall);
    else hatch(self, context, corner(place)[0], corner(place)[1], wide, tall);
  }
}
