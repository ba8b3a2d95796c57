// The model's input cut into patches: in the image, spread apart, or as a row of tokens wrapped like text.
// One patch is selected and shown with its numbers.

import { colourbar } from '../../frontend/colours.js';
import { pixels } from '../../frontend/data.js';
import { div, el, figure, fit, stack } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { number } from '../../frontend/numbers.js';
import { framing } from '../../frontend/outliers.js';
import { cells, outline, plotted, tip } from '../../frontend/pointer.js';
import { drawMissing } from '../../frontend/removed_patches.js';
import { described, inspect } from './detail.js';

const inputSize = ({ grid }) => [grid.cols * grid.patch[1], grid.rows * grid.patch[0]];

/** Layout of the patches in CSS px: in the image, spread apart, or as a row of tokens wrapped like text. */
function layout(self) {
  const { grid, settings } = self;
  const [w, h] = inputSize(self);
  const limit = self.tall;
  const room = Math.min(self.wide ? self.width - self.detail - 28 : self.width, 1100);
  const apart = Number(settings.gap ?? 0);
  const left = 26 * self.zoom;
  const top = 22 * self.zoom;
  if (settings.form === 'sequence') {
    const count = grid.rows * grid.cols;
    const prefix = grid.prefix.length;
    const aspect = grid.patch[0] / grid.patch[1];
    const label = count <= 400 ? 14 * self.zoom : 0;
    let across = Math.max(6, Math.ceil(Math.sqrt((count * room * aspect) / limit)));
    if (across === grid.cols) across += 1; // keeps the sequence from looking like the image
    const pitch = room / across;
    const gap = Math.max(1, pitch * (0.12 + 0.3 * apart));
    const size = pitch - gap;
    const down = size * aspect + gap + label;
    const rows = Math.ceil((count + prefix) / across);
    const at = (i) => {
      const place = i + prefix;
      return [(place % across) * pitch, Math.floor(place / across) * down, size, size * aspect];
    };
    const whole = { width: room, height: rows * down, left: 0, top: 0 };
    return { at, ...whole, pitch, down, across, prefix, label, rows, sequence: true, spread: null };
  }
  const scale = Math.min((room - left) / w, (limit - top) / h);
  const spread = apart * 0.5;
  const pitch = [(w * scale) / grid.cols, (h * scale) / grid.rows];
  const size = [pitch[0] / (1 + spread), pitch[1] / (1 + spread)];
  const corner = (i) => [left + (i % grid.cols) * pitch[0], top + Math.floor(i / grid.cols) * pitch[1]];
  const at = (i) => [...corner(i), ...size];
  const whole = { width: left + w * scale, height: top + h * scale, left, top };
  const steps = { pitch: pitch[0], down: pitch[1], across: grid.cols, rows: grid.rows };
  return { at, ...whole, ...steps, prefix: 0, label: 0, sequence: false, spread };
}

/** Draws a prefix token. */
function drawChip(self, context, goal, i) {
  const [x, y, w, h] = goal.at(i - goal.prefix);
  context.fillStyle = self.colour('--vv-accent');
  context.globalAlpha = 0.16;
  context.fillRect(x, y, w, h);
  context.globalAlpha = 1;
  context.strokeStyle = self.colour('--vv-accent');
  context.lineWidth = 1.5;
  context.strokeRect(x + 0.75, y + 0.75, w - 1.5, h - 1.5);
  context.fillStyle = self.colour('color');
  context.font = `600 ${Math.min(13 * self.zoom, w * 0.36)}px ${self.colour('font-family')}`;
  const name = self.grid.prefix[i];
  const short = { class: 'cls', distillation: 'dist' }[name] || name.replace(/^register\s*/, 'r');
  context.fillText(short, x + w / 2, y + h / 2, w - 4);
}

/** Draws grid lines, and the numbers of columns and rows. */
function drawFrame(self, context, goal, ink, font) {
  const { grid } = self;
  if (goal.spread === 0) {
    context.fillStyle = 'rgb(255 255 255 / .55)';
    for (let c = 1; c < grid.cols; c++)
      context.fillRect(goal.left + c * goal.pitch - 0.5, goal.top, 1, goal.height - goal.top);
    for (let r = 1; r < grid.rows; r++)
      context.fillRect(goal.left, goal.top + r * goal.down - 0.5, goal.width - goal.left, 1);
  }
  context.fillStyle = ink;
  context.font = `${11.5 * self.zoom}px ${font}`;
  context.globalAlpha = 0.75;
  const every = (room, pitch) => Math.max(1, Math.ceil(room / pitch));
  const [cx, cy] = [every(20 * self.zoom, goal.pitch), every(15 * self.zoom, goal.down)];
  for (let c = 0; c < grid.cols; c += cx)
    context.fillText(String(c + 1), goal.at(c)[0] + goal.at(c)[2] / 2, goal.top / 2 - 1);
  context.textAlign = 'right';
  for (let r = 0; r < grid.rows; r += cy)
    context.fillText(String(r + 1), goal.left - 7, goal.at(r * grid.cols)[1] + goal.at(0)[3] / 2);
  context.globalAlpha = 1;
}

export default () => ({
  title: 'The image as a sequence of patches',
  keeps: true,
  reset: (self) => (self.picked = null),

  build(self) {
    self.picked = null;
    const { canvas, plot, spot: hover } = plotted();
    const chosen = outline(plot, 'vv-pinned');
    const framed = framing(self, plot);
    const count = el('p', { class: 'vv-text' });
    const name = el('p', { class: 'vv-h' });
    const where = el('p', { class: 'vv-text' });
    const big = el('canvas', { role: 'img', 'aria-label': t('Selected patch') });
    const bar = colourbar();
    const colours = [t('Red'), t('Green'), t('Blue')];
    const planes = colours.map((colour) => el('canvas', { role: 'img', 'aria-label': colour }));
    const strip = el('canvas', { tabindex: 0 });
    const stripName = el('p', { class: 'vv-text' });
    const spot = outline(el('div'));
    const norms = el('p', { class: 'vv-text' });
    const normBars = div('vv-norms');
    const stripPlot = div('vv-plot', strip, spot.node);
    const numbered = planes.map((plane, i) => figure(plane, colours[i]));
    const shown = div('vv-planes', figure(big, t('Pixels')), ...numbered);
    const kind = { class: 'vv-stack vv-detail vv-flat', tabindex: '0' };
    const detail = el('div', kind, el('div', {}, name, where), shown, bar.node, normBars, norms);
    const row = div('vv-row vv-positions', stack(plot, count, framed.node), detail);
    const rest = div('vv-stack vv-rest', stripName, stripPlot);
    self.figure.append(div('vv-stack vv-patches', row, rest));
    const learned = (token) => [
      t('Token {number}: {name}', { number: token + 1, name: t(self.grid.prefix[token]) }),
      t('learned, precedes the patches'),
    ];
    const pick = (cell) => {
      const patch = this.patch(self, cell);
      if (patch < 0 || patch >= self.grid.rows * self.grid.cols) return;
      self.picked = patch;
      inspect(self);
    };
    cells(self, canvas, {
      place: () => self.ui.place,
      label: () => t('The model’s input, cut into patches.'),
      name: (cell) => {
        const patch = this.patch(self, cell);
        if (patch >= self.grid.rows * self.grid.cols) return '';
        return patch < 0 ? learned(cell).join(', ') : described(self, patch).join(', ');
      },
      start: () => self.picked + self.ui.layout.prefix,
      hover: (cell, event) => {
        const patch = this.patch(self, cell);
        if (patch < 0 || patch >= self.grid.rows * self.grid.cols) {
          hover.hide();
          return patch < 0 ? tip.show(event, ...learned(cell)) : tip.hide();
        }
        hover.put(...self.ui.layout.at(patch));
        tip.show(event, ...described(self, patch));
      },
      leave: () => hover.hide(),
      pick,
      hold: pick,
    });
    const numbers = (event) => {
      const box = strip.getBoundingClientRect();
      const { across, cell, tall, values, per } = self.ui.strip || {};
      if (!values) return;
      const col = Math.floor((event.clientX - box.left) / cell);
      const row = Math.floor((event.clientY - box.top) / tall);
      const i = row * across + col;
      if (col < 0 || col >= across || i < 0 || i >= values.length) return tip.hide();
      spot.put(col * cell, row * tall, cell, tall);
      bar.mark(values[i]);
      const pixel = Math.floor(i / 3);
      const at = { colour: colours[i % 3], row: Math.floor(pixel / per) + 1, col: (pixel % per) + 1 };
      const place = t('Number {index} of {count}', { index: i + 1, count: values.length });
      const told = t('{colour} of the pixel in row {row}, column {col}', at);
      tip.show(event, number(values[i], 4), place, told);
    };
    strip.addEventListener('pointermove', numbers);
    strip.addEventListener('pointerdown', numbers);
    strip.addEventListener('pointerleave', () => {
      spot.hide();
      tip.hide();
      bar.mark(null);
    });
    const texts = { count, name, where, stripName, norms, normBars };
    return { canvas, chosen, framed, big, planes, bar, strip_: strip, rest, ...texts };
  },

  patch: (self, cell) => cell - self.ui.layout.prefix,

  pictures: () => ['input'],
  items: (self) => (self.value.items.norms ? ['norms'] : []), // available after the pass

  draw(self) {
    const { ui, grid, data } = self;
    const goal = layout(self);
    const count = grid.rows * grid.cols;
    data.bytes ??= pixels(data.input);
    ui.layout = goal;
    const size = { width: goal.pitch * goal.across, height: goal.down * goal.rows };
    ui.place = { rows: goal.rows, cols: goal.across, x: goal.left, y: goal.top, ...size };
    const context = fit(ui.canvas, goal.width, goal.height, self.density);
    const ink = self.colour('color');
    const font = self.colour('font-family');
    context.imageSmoothingEnabled = false;
    const [ph, pw] = grid.patch;
    for (let i = 0; i < count; i++) {
      const [x, y, w, h] = goal.at(i);
      const last = goal.spread === 0 ? 0.5 : 0;
      const [left, top] = [(i % grid.cols) * pw, Math.floor(i / grid.cols) * ph];
      context.drawImage(data.input, left, top, pw, ph, x, y, w + last, h + last);
    }
    drawMissing(self, context, goal.at);
    context.fillStyle = ink;
    context.textBaseline = 'middle';
    context.textAlign = 'center';
    if (goal.sequence) {
      for (let i = 0; i < goal.prefix; i++) drawChip(self, context, goal, i);
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
      drawFrame(self, context, goal, ink, font);
    }
    const gone = self.value.missing?.as === 'dropped' ? self.value.missing.patches.length : 0;
    const tokens = count - gone + grid.prefix.length;
    const left = gone ? ` − ${t('{count} removed', { count: gone })}` : '';
    const sum = `${grid.rows} × ${grid.cols}${left} = ${count - gone}`;
    const names = grid.prefix.map((n) => t(n)).join(', ');
    const told = { sum, height: ph, width: pw, prefix: grid.prefix.length, names, tokens };
    ui.count.textContent = names
      ? t('{sum} patches of {height} × {width} pixels + {prefix} ({names}) = {tokens} tokens', told)
      : t('{sum} patches of {height} × {width} pixels: {tokens} tokens', told);
    inspect(self);
    // before the pass there are no norms and no removed patches
    if (self.value.items.norms) ui.framed.draw(goal, goal.at);
  },
});
