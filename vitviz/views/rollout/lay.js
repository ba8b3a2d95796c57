// The map in view, laid over the picture with its scale.

import { enlarged, tinted } from '../../canvas/colours.js';
import { differs, reach } from '../../canvas/difference.js';
import { bounds } from '../../canvas/numbers.js';
import { still } from '../../canvas/still.js';

/** The map in view: the rollout, or one layer's mean attention. */
export function chosen(self) {
  const { map, layers } = self.data;
  const size = self.grid.rows * self.grid.cols;
  const { alone } = self.settings;
  return alone ? layers.values.subarray((alone - 1) * size, alone * size) : map.values;
}

/** Whether it is drawn as in the paper: map / max as brightness, which a difference has not. */
export const asPaper = (self) => self.settings.overlay === 'paper' && !differs(self);

/** The colours of its scale. */
export const coloursOf = (self) =>
  differs(self) ? 'balance' : asPaper(self) ? 'grey' : self.settings.colormap;

/** Both ends of the scale of a map. */
export function scale(self, values) {
  if (differs(self)) {
    const most = still(self, JSON.stringify(self.settings), 0, reach(values))[1] || 1;
    return [-most, most];
  }
  const [low, high] = still(self, JSON.stringify(self.settings), ...bounds(values));
  return [
    self.settings.scale === 'data' && self.settings.overlay !== 'paper' && low < high ? low : 0,
    high || 1,
  ]; // the paper's form is map / max
}

/** Lays the map over a picture drawn on `context` with `s` pixels for each pixel of the upload. */
export function lay(self, context, s, width, height) {
  const { box } = self.photo;
  const values = chosen(self);
  const paper = asPaper(self);
  const { rows, cols } = self.grid;
  const [low, high] = scale(self, values);
  const smooth = self.settings.smooth !== 'off';
  const source = smooth
    ? enlarged(values, rows, cols, Math.max(2, Math.ceil(420 / Math.max(rows, cols))))
    : { values, rows, cols };
  const heat = tinted(source.values, source.rows, source.cols, coloursOf(self), low, high);
  const [x, y, w, h] = [box[0] * s, box[1] * s, (box[2] - box[0]) * s, (box[3] - box[1]) * s];
  context.save();
  context.fillStyle = paper ? '#000' : self.colour('--vv-paper');
  context.globalAlpha = paper ? 0.85 : 0.62;
  context.beginPath();
  context.rect(0, 0, width, height);
  context.rect(x, y, w, h);
  context.fill('evenodd');
  context.globalAlpha = paper ? 1 : (self.settings.opacity ?? 0.6);
  context.globalCompositeOperation = paper ? 'multiply' : 'source-over';
  context.imageSmoothingEnabled = smooth;
  context.imageSmoothingQuality = 'high';
  context.drawImage(heat, x, y, w, h);
  context.restore();
}
