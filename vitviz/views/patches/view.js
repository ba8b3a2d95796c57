// The model's input cut into its patches; one of them picked, with the numbers it is made of.

import { colourbar } from '../../canvas/colourbar.js';
import { tinted } from '../../canvas/colours.js';
import { pixels } from '../../canvas/data.js';
import { el, fit } from '../../canvas/elements.js';
import { patchName, placeName } from '../../canvas/names.js';
import { number } from '../../canvas/numbers.js';
import { cells, outline } from '../../canvas/pointer.js';
import { tip } from '../../canvas/tip.js';
import { t } from '../../canvas/words.js';

const inputSize = ({ grid }) => [grid.cols * grid.patch[1], grid.rows * grid.patch[0]];

/** Where patch i lies, in CSS pixels: in the picture, spread apart, or as a row of tokens wrapped like text. */
function layout(self) {
  const { grid, settings } = self, [w, h] = inputSize(self), limit = self.tall;
  const room = Math.min(self.wide ? self.width - self.detail - 28 : self.width, 1100), apart = Number(settings.gap ?? 0);
  const left = 26 * self.zoom, top = 22 * self.zoom;
  if (settings.form === 'sequence') {
    const count = grid.rows * grid.cols, prefix = grid.prefix.length, aspect = grid.patch[0] / grid.patch[1], label = count <= 400 ? 14 * self.zoom : 0;
    let across = Math.max(6, Math.ceil(Math.sqrt((count * room * aspect) / limit)));
    if (across === grid.cols) across += 1; // a sequence that does not happen to look like the picture
    const pitch = room / across, gap = Math.max(1, pitch * (0.12 + 0.3 * apart)), size = pitch - gap, down = size * aspect + gap + label, rows = Math.ceil((count + prefix) / across);
    const at = (i) => [((i + prefix) % across) * pitch, Math.floor((i + prefix) / across) * down, size, size * aspect];
    return { at, width: room, height: rows * down, pitch, down, across, prefix, label, left: 0, top: 0, rows, sequence: true };
  }
  const scale = Math.min((room - left) / w, (limit - top) / h), spread = apart * 0.5;
  const pitch = [(w * scale) / grid.cols, (h * scale) / grid.rows], size = [pitch[0] / (1 + spread), pitch[1] / (1 + spread)];
  const at = (i) => [left + (i % grid.cols) * pitch[0], top + Math.floor(i / grid.cols) * pitch[1], size[0], size[1]];
  return { at, width: left + w * scale, height: top + h * scale, pitch: pitch[0], down: pitch[1], across: grid.cols, prefix: 0, label: 0, left, top, rows: grid.rows, spread };
}

export default () => ({
  title: 'The picture as a sequence of patches',
  keeps: true,
  reset: (self) => { self.picked = null; },

  build(self) {
    self.picked = null;
    const canvas = el('canvas'), plot = el('div', { class: 'vv-plot' }, canvas), hover = outline(plot), chosen = outline(plot, 'vv-pinned'), count = el('p', { class: 'vv-text' });
    hover.node.dataset.export = 'no';
    const name = el('p', { class: 'vv-h' }), where = el('p', { class: 'vv-text' }), big = el('canvas', { role: 'img', 'aria-label': t('The picked patch') }), bar = colourbar();
    const colours = [t('Red'), t('Green'), t('Blue')], planes = colours.map((colour) => ({ canvas: el('canvas', { role: 'img', 'aria-label': colour }), colour }));
    const strip = el('canvas', { tabindex: 0 }), stripName = el('p', { class: 'vv-text' }), spot = outline(el('div'));
    const norms = el('p', { class: 'vv-text' }), normBars = el('div', { class: 'vv-norms' });
    const stripPlot = el('div', { class: 'vv-plot' }, strip, spot.node);
    self.figure.append(el('div', { class: 'vv-stack vv-patches' },
      el('div', { class: 'vv-row vv-positions' }, el('div', { class: 'vv-stack' }, plot, count),
        el('div', { class: 'vv-stack vv-detail vv-flat' }, el('div', {}, name, where),
          el('div', { class: 'vv-planes' }, el('figure', {}, el('div', { class: 'vv-plot' }, big), el('figcaption', { text: t('Pixels') })), ...planes.map((p) => el('figure', {}, el('div', { class: 'vv-plot' }, p.canvas), el('figcaption', { text: p.colour })))),
          bar.node, normBars, norms)),
      el('div', { class: 'vv-stack vv-rest' }, stripName, stripPlot)));
    const learned = (token) => [t('Token {number}: {name}', { number: token + 1, name: t(self.grid.prefix[token]) }), t('learned, stands before the patches')];
    cells(self, canvas, {
      place: () => self.ui.place,
      label: () => t('The model’s input, cut into patches.'),
      name: (cell) => {
        const patch = this.patch(self, cell);
        if (patch >= self.grid.rows * self.grid.cols) return '';
        return patch < 0 ? learned(cell).join(', ') : this.describe(self, patch).join(', ');
      },
      start: () => self.picked + self.ui.layout.prefix,
      hover: (cell, event) => {
        const patch = this.patch(self, cell);
        if (patch < 0 || patch >= self.grid.rows * self.grid.cols) {
          hover.hide();
          return patch < 0 ? tip.show(event, ...learned(cell)) : tip.hide();
        }
        hover.put(...self.ui.layout.at(patch));
        tip.show(event, ...this.describe(self, patch));
      },
      leave: () => hover.hide(),
      pick: (cell) => {
        const patch = this.patch(self, cell);
        if (patch < 0 || patch >= self.grid.rows * self.grid.cols) return;
        self.picked = patch;
        this.inspect(self);
      },
      hold: (cell) => {
        const patch = this.patch(self, cell);
        if (patch < 0 || patch >= self.grid.rows * self.grid.cols) return;
        self.picked = patch;
        this.inspect(self);
      },
    });
    const numbers = (event) => {
      const box = strip.getBoundingClientRect(), { across, cell, tall, values, per } = self.ui.strip || {};
      if (!values) return;
      const col = Math.floor((event.clientX - box.left) / cell), row = Math.floor((event.clientY - box.top) / tall), i = row * across + col;
      if (col < 0 || col >= across || i < 0 || i >= values.length) return tip.hide();
      spot.put(col * cell, row * tall, cell, tall);
      bar.mark(values[i]);
      const pixel = Math.floor(i / 3), [y, x] = [Math.floor(pixel / per) + 1, (pixel % per) + 1];
      tip.show(event, number(values[i], 4), t('Number {index} of {count}', { index: i + 1, count: values.length }), t('{colour} of the pixel in row {row}, column {col}', { colour: colours[i % 3], row: y, col: x }));
    };
    strip.addEventListener('pointermove', numbers);
    strip.addEventListener('pointerdown', numbers);
    strip.addEventListener('pointerleave', () => { spot.hide(); tip.hide(); bar.mark(null); });
    return { canvas, plot, chosen, count, name, where, big, planes, bar, strip_: strip, stripName, norms, normBars, place: null, layout: null, strip: null };
  },

  patch: (self, cell) => cell - self.ui.layout.prefix,

  describe(self, patch) {
    const { grid } = self, prefix = grid.prefix.length, tokens = grid.rows * grid.cols + prefix;
    const first = `${patchName(self.grid, patch)}: ${placeName(grid, patch)}`;
    if (!prefix) return [first, t('token {token} of {tokens}', { token: patch + 1, tokens })];
    const values = { token: patch + prefix + 1, tokens, count: prefix, names: grid.prefix.map((n) => t(n)).join(', ') };
    return [first, prefix === 1 ? t('token {token} of {tokens}, behind the {names} token', values) : t('token {token} of {tokens}, behind {count} prefix tokens', values)];
  },

  pictures: () => ['input'],
  items: () => ['norms'],

  draw(self) {
    const { ui, grid, data } = self, goal = layout(self), count = grid.rows * grid.cols;
    data.bytes ??= pixels(data.input);
    ui.layout = goal;
    ui.place = { rows: goal.rows, cols: goal.across, x: goal.left, y: goal.top, width: goal.pitch * goal.across, height: goal.down * goal.rows };
    const context = fit(ui.canvas, goal.width, goal.height, self.density), ink = self.colour('color'), font = self.colour('font-family');
    context.imageSmoothingEnabled = false;
    const [ph, pw] = grid.patch;
    for (let i = 0; i < count; i++) {
      const [x, y, w, h] = goal.at(i), last = goal.spread === 0 ? 0.5 : 0;
      context.drawImage(data.input, (i % grid.cols) * pw, Math.floor(i / grid.cols) * ph, pw, ph, x, y, w + last, h + last);
    }
    context.fillStyle = ink;
    context.textBaseline = 'middle';
    context.textAlign = 'center';
    if (goal.sequence) {
      for (let i = 0; i < goal.prefix; i++) this.chip(self, context, goal, i);
      context.font = `${(goal.pitch < 26 * self.zoom ? 9 : 10.5) * self.zoom}px ${font}`;
      context.globalAlpha = 0.8;
      if (goal.label && goal.pitch >= 18 * self.zoom) {
        for (let i = 0; i < count; i++) {
          const [x, y, w, h] = goal.at(i);
          context.fillText(String(i + 1), x + w / 2, y + h + goal.label / 2, goal.pitch);
        }
      }
      context.globalAlpha = 1;
    } else {
      this.frame(self, context, goal, ink, font);
    }
    const tokens = count + grid.prefix.length, sum = `${grid.rows} × ${grid.cols} = ${count}`;
    ui.count.textContent = grid.prefix.length
      ? t('{sum} patches of {height} × {width} pixels + {prefix} ({names}) = {tokens} tokens', { sum, height: ph, width: pw, prefix: grid.prefix.length, names: grid.prefix.map((n) => t(n)).join(', '), tokens })
      : t('{sum} patches of {height} × {width} pixels: {tokens} tokens', { sum, height: ph, width: pw, tokens });
    this.inspect(self);
  },

  chip(self, context, goal, i) { // a token that is no patch
    const [x, y, w, h] = [(i % goal.across) * goal.pitch, Math.floor(i / goal.across) * goal.down, ...goal.at(0).slice(2)];
    context.fillStyle = self.colour('--vv-accent');
    context.globalAlpha = 0.16;
    context.fillRect(x, y, w, h);
    context.globalAlpha = 1;
    context.strokeStyle = self.colour('--vv-accent');
    context.lineWidth = 1.5;
    context.strokeRect(x + 0.75, y + 0.75, w - 1.5, h - 1.5);
    context.fillStyle = self.colour('color');
    context.font = `600 ${Math.min(13 * self.zoom, w * 0.36)}px ${self.colour('font-family')}`;
    const name = self.grid.prefix[i], short = { class: 'cls', distillation: 'dist' }[name] || name.replace(/^register\s*/, 'r');
    context.fillText(short, x + w / 2, y + h / 2, w - 4);
  },

  frame(self, context, goal, ink, font) { // grid lines, and the numbers of columns and rows
    const { grid } = self;
    if (goal.spread === 0) {
      context.fillStyle = 'rgb(255 255 255 / .55)';
      for (let c = 1; c < grid.cols; c++) context.fillRect(goal.left + c * goal.pitch - 0.5, goal.top, 1, goal.height - goal.top);
      for (let r = 1; r < grid.rows; r++) context.fillRect(goal.left, goal.top + r * goal.down - 0.5, goal.width - goal.left, 1);
    }
    context.fillStyle = ink;
    context.font = `${11.5 * self.zoom}px ${font}`;
    context.globalAlpha = 0.75;
    const every = (room, pitch) => Math.max(1, Math.ceil(room / pitch)), [cx, cy] = [every(20 * self.zoom, goal.pitch), every(15 * self.zoom, goal.down)];
    for (let c = 0; c < grid.cols; c += cx) context.fillText(String(c + 1), goal.at(c)[0] + goal.at(c)[2] / 2, goal.top / 2 - 1);
    context.textAlign = 'right';
    for (let r = 0; r < grid.rows; r += cy) context.fillText(String(r + 1), goal.left - 7, goal.at(r * grid.cols)[1] + goal.at(0)[3] / 2);
    context.globalAlpha = 1;
  },

  /** The picked patch: its pixels, its three planes of numbers, its vector, its embedding's norms. */
  inspect(self) {
    const { ui, grid, data, summary } = self, [ph, pw] = grid.patch, count = grid.rows * grid.cols;
    if (self.picked === null || self.picked >= count) self.picked = Math.floor(grid.rows / 2) * grid.cols + Math.floor(grid.cols / 2);
    const patch = self.picked, size = ph * pw * 3, values = new Float32Array(size), across = grid.cols * pw;
    const [first, ...rest] = this.describe(self, patch);
    const top = Math.floor(patch / grid.cols) * ph, left = (patch % grid.cols) * pw;
    for (let i = 0; i < size; i++) {
      const channel = i % 3, pixel = (i - channel) / 3;
      values[i] = (data.bytes[((top + Math.floor(pixel / pw)) * across + left + (pixel % pw)) * 4 + channel] / 255 - summary.mean[channel]) / summary.std[channel];
    }
    const low = Math.min(...summary.mean.map((m, c) => -m / summary.std[c])), high = Math.max(...summary.mean.map((m, c) => (1 - m) / summary.std[c]));
    ui.name.textContent = first;
    ui.where.textContent = rest.join(' ');
    ui.chosen.put(...ui.layout.at(patch));
    const widest = self.wide ? Math.min((self.detail - 12) / 2, Math.max(56, (self.tall - 270 * self.zoom) / 2)) : (Math.min(self.width, 480) - 36) / 4;
    const side = Math.floor(widest), height = (side * ph) / pw;
    const context = fit(ui.big, side, height, self.density);
    context.imageSmoothingEnabled = false;
    context.drawImage(data.input, left, top, pw, ph, 0, 0, side, height);
    ui.planes.forEach((plane, channel) => {
      const numbers = Float32Array.from({ length: ph * pw }, (_, i) => values[3 * i + channel]), on = fit(plane.canvas, side, height, self.density);
      on.imageSmoothingEnabled = false;
      on.drawImage(tinted(numbers, ph, pw, 'cividis', low, high), 0, 0, side, height);
    });
    ui.bar.update('cividis', low, high, t('Value given to the model: (pixel − mean) / standard deviation'));
    this.vector(self, values, low, high);
    this.norms(self, patch, count);
  },

  vector(self, values, low, high) {
    const [ph, pw] = self.grid.patch, room = self.width;
    let lines = ph; // whole rows of pixels in a line, as many as find room
    while (lines > 1 && (values.length / lines) * 2 * 3.5 <= room && lines % 2 === 0) lines /= 2;
    const fits = values.length / lines;
    const cell = Math.max(1, Math.min(10, room / fits)), rows = Math.ceil(values.length / fits);
    const tall = Math.max(cell, Math.min(14, 56 / rows)), context = fit(self.ui.strip_, cell * fits, tall * rows, self.density);
    context.imageSmoothingEnabled = false;
    for (let r = 0; r < rows; r++) {
      const part = values.subarray(r * fits, Math.min(values.length, (r + 1) * fits));
      context.drawImage(tinted(part, 1, part.length, 'cividis', low, high), 0, r * tall, part.length * cell, Math.max(1, tall - (tall > 4 ? 1 : 0)));
    }
    self.ui.strip = { across: fits, cell, tall, values, per: pw };
    self.ui.strip_.setAttribute('aria-label', t('The patch as a vector'));
    self.ui.stripName.textContent = t('Flattened: {height} · {width} · 3 = {count} numbers, pixel by pixel, red, green, blue', { height: ph, width: pw, count: values.length });
  },

  norms(self, patch, count) {
    const { norms: { values } } = self.data, before = values[patch], after = values[count + patch], most = values.reduce((a, b) => (b > a ? b : a), 0) || 1;
    const row = (label, value) => el('div', { class: 'vv-normrow' }, el('span', { text: label }), el('span', { class: 'vv-track' }, el('span', { style: `width:${(value / most) * 100}%` })), el('span', { text: value.toPrecision(value < 100 ? 3 : 4) }));
    self.ui.normBars.replaceChildren(row(t('Norm of its embedding'), before), ...(Number.isFinite(after) ? [row(t('… with position embedding'), after)] : []));
    const width = self.summary.width;
    self.ui.norms.textContent = Number.isFinite(after)
      ? t('The {count} numbers become {width}: the embedding. Bars end at the largest norm of this picture.', { count: self.ui.strip.values.length, width })
      : t('The {count} numbers become {width}: the embedding. This model adds no absolute position embedding.', { count: self.ui.strip.values.length, width });
  },
});
