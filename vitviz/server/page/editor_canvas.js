// The canvas of the image editor: the image, and over it a preview of what is not painted yet.

import { fit } from '../../frontend/elements.js';

/** Makes the canvas, which fills `plot`. */
export function editorCanvas(plot, canvas) {
  let scale = 1; // CSS pixels per pixel of the image

  /** A pointer's position in pixels of the image. */
  function place(event) {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top].map((length) => Math.round(length / scale));
  }

  function strokeOf(context, { points, erases, wide }) {
    const strokeStyle = erases ? 'rgb(255 255 255 / .5)' : 'rgb(127 127 127 / .65)';
    Object.assign(context, { strokeStyle, lineWidth: wide, lineCap: 'round', lineJoin: 'round' });
    context.beginPath();
    for (const [x, y] of [...points, points.at(-1)]) context.lineTo(x, y);
    context.stroke();
  }

  /**
   * Draws an image of `size`, and over it `drafts`, paths whose strokes are not painted yet, and `over`, the
   * drawing of the tools. Without `over` only the image.
   * @param {any} image @param {number[]} size @param {any[]} [drafts] @param {any} [over]
   */
  function draw(image, size, drafts = [], over = null) {
    const [w, h] = size;
    scale = Math.min(plot.clientWidth / w, plot.clientHeight / h);
    const context = fit(canvas, w * scale, h * scale, window.devicePixelRatio || 1);
    context.scale(scale, scale);
    context.drawImage(image, 0, 0, w, h);
    if (!over) return;
    const { path, cuts, region, shift, cursor } = over;
    for (const one of path && !cuts ? [...drafts, path] : drafts) strokeOf(context, one);
    const [across, along] = shift;
    const line = () => {
      context.beginPath();
      const around = region ? region.outline : cuts && path ? path.points : [];
      for (const [x, y] of around) context.lineTo(x + across, y + along);
      const [left, top, width, height] = region?.rect ?? [];
      if (around.length && region) context.closePath();
      else if (region) context.rect(left + across, top + along, width, height);
    };
    if (region && (across || along)) {
      context.save();
      line();
      context.clip();
      const [left, top, width, height] = region.rect;
      const to = image.width / w;
      /** @type {[number, number, number, number]} */
      const place = [left + across, top + along, width, height];
      context.drawImage(image, left * to, top * to, width * to, height * to, ...place);
      context.restore();
    }
    // visible on any background
    const seen = { lineWidth: 2 / scale, strokeStyle: '#fff', globalCompositeOperation: 'difference' };
    Object.assign(context, seen);
    line();
    context.stroke();
    if (cursor) {
      const arm = 8 / scale;
      context.strokeRect(cursor[0] - arm, cursor[1], 2 * arm, 0);
      context.strokeRect(cursor[0], cursor[1] - arm, 0, 2 * arm);
    }
    context.globalCompositeOperation = 'source-over';
  }

  return { place, draw };
}
