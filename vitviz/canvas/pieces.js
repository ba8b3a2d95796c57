// The model's input with some of its patches gone or in other places.

import { fit } from './elements.js';
import { hatch } from './missing.js';

/**
 * Draws the picture `width` CSS pixels wide. `order` says which patch stands at each place; the places in
 * `gone` are empty, or black.
 * @param {any} self
 * @param {HTMLCanvasElement} canvas
 * @param {object} given
 * @param {ImageBitmap} given.picture
 * @param {number} given.width
 * @param {Int32Array} [given.order]
 * @param {Int32Array} [given.gone]
 * @param {boolean} [given.black]
 */
export function pieces(self, canvas, { picture, width, order, gone, black }) {
  const { cols, patch } = self.grid;
  const unit = width / picture.width;
  const [tall, wide] = patch.map((pixels) => pixels * unit);
  const context = fit(canvas, width, picture.height * unit, self.density);
  const corner = (place) => [(place % cols) * wide, Math.floor(place / cols) * tall];
  context.imageSmoothingEnabled = unit * self.density < 1;
  context.drawImage(picture, 0, 0, width, picture.height * unit); // with a rim that no patch is cut from
  order?.forEach((from, place) => {
    const [x, y] = [(from % cols) * patch[1], Math.floor(from / cols) * patch[0]];
    context.drawImage(picture, x, y, patch[1], patch[0], ...corner(place), wide, tall);
  });
  for (const place of gone ?? []) {
    if (black) context.fillRect(...corner(place), wide, tall);
    else hatch(self, context, corner(place)[0], corner(place)[1], wide, tall);
  }
}
