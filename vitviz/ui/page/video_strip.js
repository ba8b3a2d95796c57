// Time against heads: a number of every head, layer by layer from the top, in every frame of a video that has
// been looked at.

import { tinted } from '../../canvas/colours.js';
import { svg } from '../../canvas/elements.js';
import { bounds, number } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';

const EDGE = { left: 40, right: 40 };
const TALL = 110;
const LOW = TALL - 22;

/** `rows[frame].heads` has a number for each head of each layer; frames not asked about stay empty. */
export function drawStrip(plot, frames, rows, at) {
  const wide = plot.parentNode.clientWidth - 28;
  const count = rows.find((row) => row?.heads)?.heads.length ?? 0;
  if (wide <= 0 || !count) return plot.replaceChildren();
  const values = new Float32Array(count * frames.length).fill(NaN);
  rows.forEach((row, frame) =>
    row?.heads?.forEach((value, head) => {
      values[head * frames.length + frame] = value;
    }),
  );
  const [low, high] = bounds(values.filter(Number.isFinite));
  const right = wide - EDGE.right;
  const each = (right - EDGE.left) / frames.length;
  const x = EDGE.left + each * (at + 0.5);
  const strip = tinted(values, count, frames.length, 'viridis', low, high);
  const place = {
    x: EDGE.left,
    y: 4,
    width: right - EDGE.left,
    height: LOW - 4,
    preserveAspectRatio: 'none',
  };
  const end = { x: EDGE.left - 6, 'text-anchor': 'end' };
  plot.setAttribute('width', wide);
  plot.setAttribute('height', TALL);
  plot.setAttribute('aria-label', t('Time against heads: {low} to {high}', told(low, high)));
  plot.replaceChildren(
    svg('image', { href: strip.toDataURL(), style: 'image-rendering: pixelated', ...place }),
    svg('line', { class: 'vv-film-at', x1: x, x2: x, y1: 0, y2: LOW + 4 }),
    svg('text', { ...end, y: 14 }, '1'),
    svg('text', { ...end, y: LOW }, t('Layer')),
    svg('text', { x: EDGE.left, y: TALL - 6 }, t('Time against heads: {low} to {high}', told(low, high))),
  );
}

const told = (low, high) => ({ low: number(low), high: number(high) });
