// Numbers as colours, the colour scale, and enlarged small images.

import encoded from './colormaps.js';
import { div, el, pen, sheet } from './elements.js';
import { bounds, number, ticks } from './numbers.js';

/** @type {Record<string, Uint32Array>} */
export const tables = {}; // colour map -> 256 opaque pixels, as a little-endian 32-bit RGBA word

for (const [name, text] of Object.entries(encoded)) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  tables[name] = Uint32Array.from(
    { length: 256 },
    (_, i) => (0xff000000 | (bytes[3 * i + 2] << 16) | (bytes[3 * i + 1] << 8) | bytes[3 * i]) >>> 0,
  );
}

export const table = (name) => tables[name] || tables.viridis;

/** Draws `rows` x `cols` numbers, one pixel each, into a small canvas (a new one, or the one given). */
export function tinted(values, rows, cols, map, low, high, start = 0, target = sheet(cols, rows)) {
  const colours = table(map);
  if (target.width !== cols) target.width = cols;
  if (target.height !== rows) target.height = rows;
  const context = pen(target);
  const image = context.createImageData(cols, rows);
  const words = new Uint32Array(image.data.buffer);
  const factor = high > low ? 255 / (high - low) : 0;
  for (let i = 0; i < words.length; i++) {
    const level = (values[start + i] - low) * factor;
    words[i] = Number.isNaN(level) ? 0 : colours[level <= 0 ? 0 : level >= 255 ? 255 : (level + 0.5) | 0];
  }
  context.putImageData(image, 0, 0);
  return target;
}

/** All colours of a map, from left to right. */
export function ramp(map, kind, canvas = sheet(256, 1)) {
  const levels = Float32Array.from({ length: 256 }, (_, i) => i);
  tinted(levels, 1, 256, map, 0, 255, 0, canvas).className = kind;
  return canvas;
}

/** Draws `rows` x `cols` RGB colours, one pixel each; transparent where a patch has no number. */
export function painted(bytes, values, rows, cols, canvas, start = 0) {
  if (canvas.width !== cols) canvas.width = cols;
  if (canvas.height !== rows) canvas.height = rows;
  const context = pen(canvas);
  const image = context.createImageData(cols, rows);
  for (let i = 0; i < rows * cols; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = bytes[start + 3 * i + c];
    image.data[4 * i + 3] = Number.isNaN(values[i]) ? 0 : 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/**
 * Bicubic enlargement (a = -0.75, as in OpenCV), clamped to the range of the input. A patch without a number
 * stays empty; for its neighbours it counts as their mean.
 */
export function enlarged(values, rows, cols, factor) {
  const weights = (x) => [
    ((-0.75 * x + 1.5) * x - 0.75) * x,
    (1.25 * x - 2.25) * x * x + 1,
    ((-1.25 * x + 1.5) * x + 0.75) * x,
    (0.75 * x - 0.75) * x * x,
  ];
  const along = (source, lines, length, step, jump) => {
    // enlarges one axis; `step` between neighbours, `jump` between lines
    const out = new Float32Array(lines * length * factor);
    for (let o = 0; o < length * factor; o++) {
      const at = (o + 0.5) / factor - 0.5;
      const base = Math.floor(at);
      const w = weights(at - base);
      const from = [0, 1, 2, 3].map((k) => Math.min(length - 1, Math.max(0, base - 1 + k)) * step);
      for (let l = 0; l < lines; l++) {
        const start = l * jump;
        const to = step === 1 ? l * length * factor + o : o * lines + l;
        out[to] =
          w[0] * source[start + from[0]] +
          w[1] * source[start + from[1]] +
          w[2] * source[start + from[2]] +
          w[3] * source[start + from[3]];
      }
    }
    return out;
  };
  const [low, high] = bounds(values);
  const known = values.filter(Number.isFinite);
  const mean = known.reduce((sum, value) => sum + value, 0) / (known.length || 1);
  const whole =
    known.length === values.length ? values : values.map((value) => (Number.isFinite(value) ? value : mean));
  const wide = along(whole, rows, cols, 1, cols);
  const full = along(wide, cols * factor, rows, cols * factor, 1);
  for (let i = 0; i < full.length; i++) full[i] = full[i] < low ? low : Math.min(full[i], high);
  if (whole !== values) {
    const across = cols * factor;
    for (let i = 0; i < full.length; i++) {
      const cell = Math.floor(i / across / factor) * cols + Math.floor((i % across) / factor);
      if (Number.isNaN(values[cell])) full[i] = NaN;
    }
  }
  return { values: full, rows: rows * factor, cols: cols * factor };
}

const WIDTH = 260; // px of a colour bar with the full number of labels; narrower ones have fewer
const LETTER = 7 / 12; // width of a digit, as a fraction of the font size

/** A colour scale with numbers: `update(map, low, high, label)`; `mark(value)` points at a value. */
export function colourbar(map = 'viridis') {
  const strip = ramp(map, 'vv-bar-strip');
  const label = div('vv-bar-label');
  const marks = div('vv-bar-ticks');
  const caret = el('div', { class: 'vv-bar-caret', hidden: true });
  const node = div('vv-bar', label, div('vv-bar-body', strip, caret), marks);
  let low = 0;
  let high = 1;
  let drawn = [];
  const update = (...given) => {
    if (given.join('|') === drawn.join('|')) return;
    drawn = given;
    draw(...given);
  };
  const draw = (name, from, to, text) => {
    const width = Math.min(node.clientWidth || WIDTH, WIDTH);
    const letter = LETTER * (parseFloat(getComputedStyle(marks).fontSize) || 12);
    [low, high] = [from, to];
    label.textContent = text;
    ramp(name, 'vv-bar-strip', strip);
    const share = (value) => (to > from ? ((value - from) / (to - from)) * 100 : 0);
    const said = (value) => number(Math.abs(value) < (to - from) * 1e-9 ? 0 : value);
    const room = (value) => ((100 * letter) / width) * said(value).length; // per cent of the bar
    let end = room(from) + 2;
    const inner = ticks(from, to, 4).filter((value) => {
      const [left, right] = [share(value) - room(value) / 2, share(value) + room(value) / 2];
      const fits = left > end && right < 98 - room(to);
      if (fits) end = right + 2;
      return fits;
    });
    marks.replaceChildren(
      ...[from, ...inner, ...(to > from ? [to] : [])].map((value) => {
        const at = share(value);
        const kind = at === 0 ? 'vv-first' : at === 100 ? 'vv-last' : null;
        return el('span', { style: `left:${at}%`, class: kind, text: said(value) });
      }),
    );
  };
  const mark = (value) => {
    const gone = value === null || !Number.isFinite(value);
    if (caret.hidden !== gone) caret.hidden = gone;
    if (gone) return;
    const at = high > low ? ((value - low) / (high - low)) * 100 : 50;
    caret.style.left = `${Math.max(0, Math.min(100, at))}%`;
  };
  update(map, 0, 1, '');
  new ResizeObserver(() => draw(...drawn)).observe(node); // when the width or font size changes
  return { node, update, mark };
}
