// Patches that the model was not shown: what it saw in their places, and a frame around each.

/** Hatches a place in which there is nothing. */
export function hatch(self, context, x, y, width, height) {
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

/** Whether something else stands in place of patches: it is in the picture of the model's input. */
export const paintedOver = ({ value: { missing } }) =>
  Boolean(missing?.patches.length) && missing.as !== 'dropped';

/** Whether a patch was left out of the sequence: it asks nothing, and nothing looks at it. */
export const leftOut = ({ value: { missing } }, cell) =>
  missing?.as === 'dropped' && missing.patches.includes(cell);

/** The nearest patch that the model was shown, by rows and columns. */
export function nearestShown(self, cell) {
  const { rows, cols } = self.grid;
  const far = (other) =>
    Math.hypot(Math.floor(other / cols) - Math.floor(cell / cols), (other % cols) - (cell % cols));
  const shown = Array.from({ length: rows * cols }, (_, i) => i).filter((i) => !leftOut(self, i));
  return shown.reduce((best, other) => (far(other) < far(best) ? other : best), shown[0]);
}

/** Draws what the model saw over the upload, each patch where `box(cell)` lies: painted, or nothing. */
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

/** Frames them on a sheet above a map, dashed. */
export function frameMissing(self, context, box) {
  context.save();
  context.setLineDash([4, 3]);
  for (const [line, colour] of [
    [3, 'rgb(255 255 255 / .75)'],
    [1.5, 'rgb(0 0 0 / .85)'],
  ]) {
    [context.lineWidth, context.strokeStyle] = [line, colour];
    for (const cell of self.value.missing?.patches ?? []) {
      const [x, y, width, height] = box(cell);
      context.strokeRect(x + 1, y + 1, width - 2, height - 2);
    }
  }
  context.restore();
}
