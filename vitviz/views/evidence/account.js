// The account beside the map: a waterfall from the start to the logit, the wall of heads, and the answer forming.

import { tinted } from '../../canvas/colours.js';
import { el, fit } from '../../canvas/elements.js';
import { number, ticks } from '../../canvas/numbers.js';
import { cells, outline } from '../../canvas/pointer.js';
import { tip } from '../../canvas/tip.js';
import { t } from '../../canvas/words.js';

const COLOURS = ['#2f7fc0', '#c46a16', '#2a8a63', '#a3528c', '#7a6a00']; // told apart with any colour vision

/** A number with its sign: +2.03 or −0.56. */
export const signed = (value) => (value >= 0 ? '+' : '−') + Math.abs(value).toFixed(2);

/** Every head's share as a plain array, layer by layer. */
export const wallOf = (self) => Array.from(self.data.heads.values);

/** The parts of the account; `pick(layer, head)` is told of a head, or of a layer with head null, both from 1. */
export function account(self, { pick }) {
  const title = el('p', { class: 'vv-h' }), chart = el('canvas', { role: 'img' }), said = el('p', { class: 'vv-text' });
  const wall = el('canvas'), plot = el('div', { class: 'vv-plot' }, wall), spot = outline(plot), now = outline(plot, 'vv-pinned');
  const wallTitle = el('p', { class: 'vv-h' }), legend = el('p', { class: 'vv-legends' });
  const node = el('div', { class: 'vv-stack' }, title, el('div', { class: 'vv-plot' }, chart), said, legend, wallTitle, plot);
  const made = { node, title, chart, said, wall, plot, spot, now, wallTitle, legend, place: null };
  const at = (cell) => ({ layer: (cell % self.value.layers) + 1, head: Math.floor(cell / self.value.layers) + 1 });
  const name = (cell) => t('Layer {layer}, head {head}', at(cell));
  const share = (cell) => self.data.heads.values[(at(cell).layer - 1) * self.value.heads + at(cell).head - 1];
  cells(self, wall, {
    place: () => made.place,
    label: () => t('The share of every head.'),
    name: (cell) => `${name(cell)}: ${signed(share(cell))}`,
    hover(cell, event) {
      spot.put(...made.place.box(cell));
      tip.show(event, signed(share(cell)), name(cell), t('Click to see its patches'));
    },
    leave: () => spot.hide(),
    pick: (cell) => pick(at(cell).layer, at(cell).head),
  });
  return made;
}

/** Start, then every layer's attention and MLP, biases, and the logit at which they arrive. */
function steps(self, sums) {
  const { heads, layers } = self.value, wall = self.data.heads.values, { mlps, biases } = self.data;
  const found = [{ name: t('start'), label: t('start'), value: sums.start }];
  for (let l = 0; l < layers; l++) {
    let attention = biases.values[l];
    for (let h = 0; h < heads; h++) attention += wall[l * heads + h];
    found.push({ name: t('Layer {layer}, attention', { layer: l + 1 }), label: String(l + 1), value: attention });
    found.push({ name: t('Layer {layer}, MLP', { layer: l + 1 }), label: '', value: mlps.values[l], mlp: true });
  }
  const rest = sums.biases - biases.values.reduce((a, b) => a + b, 0) + sums.pooling;
  found.push({ name: t('biases'), label: t('bias'), value: rest });
  return found;
}

/** The waterfall and the wall. */
export function drawAccount(self, made, sums) {
  const some = self.settings.patches !== '', size = self.zoom, width = Math.max(260, self.below.clientWidth), room = self.below.clientHeight || 520;
  const tall = Math.max(130 * size, Math.min(260 * size, room * 0.42)), context = fit(made.chart, width, tall, self.density), ink = self.colour('color');
  made.title.textContent = t('The account, from the start to the logit');
  const found = steps(self, sums), [left, right, top, bottom] = [44 * size, 8, 8 * size, 34 * size];
  let sum = 0;
  const bars = some ? [] : found.map((one) => ({ ...one, from: sum, to: (sum += one.value) }));
  const values = bars.flatMap((bar) => [bar.from, bar.to]), low = Math.min(0, ...values), high = Math.max(0, ...values) || 1;
  const y = (value) => top + (1 - (value - low) / (high - low)) * (tall - top - bottom), w = (width - left - right) / (found.length + 1);
  context.font = `${12 * self.zoom}px ${self.colour('font-family')}`;
  context.fillStyle = ink;
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  if (!some) {
    for (const value of ticks(low, high, 4)) {
      context.globalAlpha = 0.14;
      context.fillRect(left, y(value), width - left - right, 1);
      context.globalAlpha = 0.85;
      context.fillText(number(value), left - 6, y(value));
    }
  }
  bars.forEach((bar, i) => {
    context.globalAlpha = bar.mlp ? 0.55 : 1;
    context.fillStyle = bar.value >= 0 ? '#c46a16' : '#2f7fc0';
    context.fillRect(left + i * w + 1, Math.min(y(bar.from), y(bar.to)), Math.max(2, w - 2), Math.max(1.5, Math.abs(y(bar.to) - y(bar.from))));
  });
  context.globalAlpha = 1;
  context.fillStyle = ink;
  context.fillRect(left + bars.length * w + 1, Math.min(y(0), y(sum)), Math.max(3, w - 2), some ? 0 : Math.max(1.5, Math.abs(y(sum) - y(0))));
  context.textAlign = 'center';
  context.textBaseline = 'top';
  const every = Math.max(1, Math.ceil((15 * size) / (2 * w)));
  bars.forEach((bar, i) => {
    const numbered = /^\d+$/.test(bar.label), shown = bar.label && (!numbered || (Number(bar.label) - 1) % every === 0);
    if (shown && numbered) context.fillText(bar.label, left + (i + 1) * w, tall - bottom + 4 * size);
  });
  context.textAlign = 'left';
  if (!some) {
    context.fillText(t('start'), left, tall - 14 * size);
    context.textAlign = 'center';
    context.fillText(t('layer: attention, MLP (pale)'), left + (width - left - right) / 2, tall - 14 * size);
    context.textAlign = 'right';
    context.fillText(t('logit'), width - right, tall - 14 * size);
  }
  made.chart.parentElement.hidden = some;
  made.title.hidden = some;
  made.chart.setAttribute('aria-label', bars.map((bar) => `${bar.name} ${signed(bar.value)}`).join(', '));
  made.said.textContent = some ? '' : t('Attention that an early layer moved counts where it is read in the end: these are direct shares.');
  made.legend.replaceChildren();
  drawWall(self, made, some, room - (some ? 0 : tall + 70 * size), width);
}

/** All heads as cells, coloured by their share. */
function drawWall(self, made, some, room, width) {
  const { layers, heads } = self.value, size = self.zoom, left = 64 * size, top = 22 * size, values = new Float32Array(layers * heads);
  for (let l = 0; l < layers; l++) for (let h = 0; h < heads; h++) values[h * layers + l] = self.data.heads.values[l * heads + h];
  const most = values.reduce((found, value) => Math.max(found, Math.abs(value)), 0) || 1;
  const pitch = Math.max(8, Math.min(54 * size, (width - left) / layers)), down = Math.max(8, Math.min(pitch, 40 * size, (room - 70 * size) / heads));
  const context = fit(made.wall, left + layers * pitch, top + heads * down, self.density);
  const [layer, head] = self.settings.chosen ? self.settings.chosen.split('.').map(Number) : [];
  context.imageSmoothingEnabled = false;
  context.drawImage(tinted(values, heads, layers, 'balance', -most, most), left, top, layers * pitch, heads * down);
  context.fillStyle = self.colour('color');
  context.font = `${12 * self.zoom}px ${self.colour('font-family')}`;
  context.textBaseline = 'middle';
  context.textAlign = 'center';
  for (let l = 0; l < layers; l += Math.ceil((18 * size) / pitch)) context.fillText(String(l + 1), left + (l + 0.5) * pitch, top / 2);
  context.textAlign = 'right';
  context.fillText(t('layer'), left - 8, top / 2);
  for (let h = 0; h < heads; h += Math.ceil((14 * size) / down)) context.fillText(h ? String(h + 1) : t('head {head}', { head: 1 }), left - 8, top + (h + 0.5) * down);
  const box = (cell) => [left + (cell % layers) * pitch, top + Math.floor(cell / layers) * down, pitch, down];
  made.place = { rows: heads, cols: layers, x: left, y: top, width: layers * pitch, height: heads * down, box };
  made.plot.hidden = made.wallTitle.hidden = false;
  made.wallTitle.textContent = some ? t('What the chosen patches gave through every head, up to {most}', { most: signed(most) }) : t('The share of every head, up to {most}', { most: signed(most) });
  if (layer) made.now.put(left + (layer - 1) * pitch, top + (head ? head - 1 : 0) * down, pitch, head ? down : heads * down); else made.now.hide();
}

/** What the classifier would say if the model ended at a depth. */
export function drawForming(self, made) {
  const { forming } = self.data, [depths, count] = forming.shape, width = Math.max(260, self.below.clientWidth), room = self.below.clientHeight || 420, size = self.zoom;
  const tall = Math.max(180 * size, Math.min(380 * size, room - 120 * size)), context = fit(made.chart, width, tall, self.density), [left, right, top, bottom] = [44 * size, 12, 10 * size, 42 * size];
  const x = (depth) => left + (depth / (depths - 1)) * (width - left - right), y = (share) => top + (1 - share) * (tall - top - bottom), ink = self.colour('color');
  made.chart.parentElement.hidden = made.title.hidden = false;
  made.title.textContent = t('The answer forming: probability if the model ended there');
  context.font = `${12 * self.zoom}px ${self.colour('font-family')}`;
  context.fillStyle = ink;
  context.textBaseline = 'middle';
  context.textAlign = 'right';
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    context.globalAlpha = 0.14;
    context.fillRect(left, y(share), width - left - right, 1);
    context.globalAlpha = 0.85;
    context.fillText(`${100 * share} %`, left - 6, y(share));
  }
  context.globalAlpha = 1;
  context.lineWidth = 2;
  for (let c = 0; c < count; c++) {
    context.strokeStyle = COLOURS[c];
    context.beginPath();
    for (let depth = 0; depth < depths; depth++) context.lineTo(x(depth), y(forming.values[depth * count + c]));
    context.stroke();
  }
  context.textAlign = 'center';
  context.textBaseline = 'top';
  const every = Math.max(1, Math.ceil((22 * size) / ((width - left - right) / (depths - 1))));
  for (let depth = 0; depth < depths; depth += every) context.fillText(String(depth), x(depth), tall - bottom + 6 * size);
  context.fillText(t('after so many layers'), left + (width - left - right) / 2, tall - 16 * size);
  made.legend.replaceChildren(...self.ui.classes.map((one, i) => el('span', { class: 'vv-legend' }, el('span', { class: 'vv-dot-key', style: `background:${COLOURS[i]}` }), el('span', { text: one.name }))));
  made.chart.setAttribute('aria-label', made.title.textContent);
  made.said.textContent = t('The final norm is applied afresh at every depth; early layers were never trained to be read so.');
  made.plot.hidden = made.wallTitle.hidden = true;
}
