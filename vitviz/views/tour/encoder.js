// Steps 7 and 8: one row of attention in numbers, and all heads and layers around it.

import { table, tinted } from '../../canvas/colours.js';
import { picture } from '../../canvas/data.js';
import { el, fit } from '../../canvas/elements.js';
import { tokenName } from '../../canvas/names.js';
import { bounds, number, ticks, total } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';
import { beside, board, captioned, dial, digits, first, folded, largest, nameOf, pair, sheetOf, stack, strip, take, tokenTitle, unpack } from './parts.js';

/** Who asks: a patch, clicked in the picture, or a prefix token. */
export function prefixChips(self) {
  const buttons = self.grid.prefix.map((name, token) => el('button', { type: 'button', text: tokenTitle(name), onclick: () => self.set('token', token) }));
  const group = el('div', { class: 'vv-buttons', role: 'group', 'aria-label': t('Or as query') }, ...buttons);
  return { node: el('div', { class: 'vv-field', hidden: !buttons.length, 'data-export': 'no' }, el('div', { class: 'vv-label' }, el('span', { text: t('Or as query') })), group), show: () => buttons.forEach((button, token) => button.setAttribute('aria-pressed', String(token === self.settings.token))) };
}

export const placed = (self, token) => (token >= first(self) ? token - first(self) : -1);

/** The keys that are worked out: the picked one, the strongest three, and the query itself. */
export function shownKeys(self, weights) {
  const strongest = Array.from(weights.keys()).sort((a, b) => weights[b] - weights[a]).slice(0, 3), picked = self.settings.keys === '' ? strongest[0] : Number(self.settings.keys);
  return { picked, keys: [...new Set([picked, ...strongest, self.settings.token])].slice(0, 5) };
}

export const attentionStep = {
  build(self) {
    const asks = board(self, { label: t('Pick the query.'), pick: take(self) }), answers = board(self, { label: t('How much the query takes from each patch. Pick a key.'), pick: (cell) => self.set('keys', String(cell + first(self))), tell: (cell) => t('weight {value}', { value: digits(self.data.worked.weights[cell + first(self)]) }) });
    const dials = [dial(self, 'layer', t('Layer'), self.value.layers), dial(self, 'head', t('Head'), self.value.heads)], chips = prefixChips(self), asked = el('p', { class: 'vv-h' }), given = el('p', { class: 'vv-h' });
    const table = el('div'), strips = [t('q'), t('k'), t('Product')].map((label) => strip(self, { label })), sum = el('p', { class: 'vv-sum' }), line = el('p', { class: 'vv-sum vv-line' });
    const made = { asks, answers, dials, chips, asked, given, table, strips, sum, line };
    const product = folded(t('All numbers of this product'), () => sheetOf([t('Number'), 'q', 'k', 'q · k'], made.q.map((q, i) => ({ cells: [String(i + 1), digits(q), digits(made.k[i]), digits(q * made.k[i])] })), 'vv-dense'));
    const keys = folded(t('All keys of this row'), () => this.table(self, Array.from(self.data.worked.weights.keys()), 'vv-dense'));
    made.folds = [product, keys];
    made.node = stack(el('div', { class: 'vv-row' }, ...dials.map((one) => one.node), chips.node), pair(stack(asked, asks.node), stack(given, answers.node)), table, line, stack(...strips.map((one) => one.node)), sum, product.node, keys.node);
    return made;
  },

  async load(self, signal) {
    const { layer, head, token } = self.settings;
    const [worked, keys] = await Promise.all([self.get('worked', signal), self.get('keys', signal)]);
    return { worked: unpack(worked), keys };
  },

  table(self, keys, kind, picked = -1) {
    const { worked: w } = self.data, bias = w.bias, shifted = w.shift !== 0;
    const heads = [t('Key'), 'q · k', t('× {scale}', { scale: number(w.scale, 6) }), ...(bias ? [t('+ bias')] : []), ...(shifted ? [t('− {largest}', { largest: digits(w.shift) })] : []), t('exp'), t('weight')];
    const rows = keys.map((j) => ({
      mark: j === picked ? 'vv-picked' : '',
      pick: picked < 0 ? null : () => self.set('keys', String(j)),
      cells: [nameOf(self, j), digits(w.products[j]), digits(w.products[j] * w.scale), ...(bias ? [digits(w.scores[j])] : []), ...(shifted ? [digits(w.scores[j] - w.shift)] : []), digits(w.powers[j]), digits(w.weights[j])],
    }));
    const empty = Array(heads.length - 3).fill(''), rest = w.powers.length - keys.length, sum = (list) => keys.reduce((total, j) => total + list[j], 0);
    if (rest) rows.push({ mark: 'vv-rest', cells: [t('the other {count}', { count: rest }), ...empty, digits(w.total - sum(w.powers)), digits(1 - sum(w.weights))] });
    rows.push({ mark: 'vv-total', cells: [t('Sum'), ...empty, digits(w.total), '1'] });
    return sheetOf(heads, rows, kind);
  },

  draw(self, made) {
    const { worked: w, keys: { values, shape: [, dim] } } = self.data, { wide } = beside(self), { picked, keys } = shownKeys(self, w.weights), { token } = self.settings;
    const width = wide ? Math.min(320, (self.width - 36) / 2, self.tall * 0.6) : Math.min(self.width, 340), room = Math.min(self.width, 900);
    made.dials.forEach((one) => one.show());
    made.chips.show();
    made.asked.textContent = t('The query: {token}', { token: nameOf(self, token) });
    made.given.textContent = t('What it takes: layer {layer}, head {head}', self.settings);
    made.asks.draw({ width, mark: placed(self, token) });
    made.answers.draw({ width, weights: w.weights.slice(first(self)), mark: placed(self, token), key: placed(self, picked) });
    made.table.replaceChildren(this.table(self, keys, '', picked));
    made.q = w.q;
    made.k = Array.from(values.subarray(picked * dim, (picked + 1) * dim));
    const products = made.q.map((q, i) => q * made.k[i]), most = Math.max(largest(made.q), largest(made.k));
    [made.q, made.k, products].forEach((vector, i) => made.strips[i].draw(vector, { width: room, most: i < 2 ? most : largest(products), text: [t('q of {token}: {count} numbers', { token: nameOf(self, token), count: dim }), t('k of {token}: {count} numbers', { token: nameOf(self, picked), count: dim }), t('their products')][i] }));
    made.sum.textContent = `${t('sum of {count} products', { count: dim })} = ${digits(w.products[picked])}`;
    const score = w.scores[picked] - w.shift, added = (w.bias ? ` + ${digits(w.bias[picked])}` : '') + (w.shift ? ` − ${digits(w.shift)}` : '');
    made.line.textContent = `${nameOf(self, picked)}:  ${digits(w.products[picked])} × ${number(w.scale, 6)}${added} = ${digits(score)},  exp(${digits(score)}) = ${digits(w.powers[picked])},  ${digits(w.powers[picked])} / ${digits(w.total)} = ${digits(w.weights[picked])}`;
    made.folds.forEach((fold) => fold.fill());
  },
};

export const layersStep = {
  build(self) {
    const layer = dial(self, 'layer', t('Layer'), self.value.layers), chips = prefixChips(self), from = board(self, { label: t('Pick the query.'), pick: take(self) }), title = el('p', { class: 'vv-h' }), heads = el('div', { class: 'vv-heads' });
    const faces = Array.from({ length: self.value.heads }, (_, h) => {
      const canvas = el('canvas', { role: 'img' }), button = el('button', { type: 'button', class: 'vv-thumb', onclick: () => self.set('head', h + 1) }, canvas, el('span', { text: t('head {head}', { head: h + 1 }) }));
      return { canvas, button };
    });
    heads.append(...faces.map((face) => face.button));
    const chart = el('canvas', { role: 'img' }), asked = el('p', { class: 'vv-h' });
    const note = el('p', { class: 'vv-text', text: t('Brightness: each head’s own largest weight. A click chooses the head for the step before.') });
    return { node: stack(el('div', { class: 'vv-row' }, layer.node, chips.node), pair(stack(asked, from.node), stack(title, heads, note)), captioned(t('Length of the tokens in the stream, layer by layer'), chart)), layer, chips, from, title, faces, chart, asked };
  },
  async load(self, signal) { return { heads: await self.get('heads', signal) }; },

  draw(self, made) {
    const { rows, cols, patch: [tall, wide] } = self.grid, { heads: { values, shape: [, tokens] } } = self.data, { picture, wide: roomy } = beside(self, 280), skip = first(self), { head, layer, token } = self.settings;
    made.layer.show();
    made.chips.show();
    made.from.draw({ width: picture, mark: placed(self, token) });
    made.asked.textContent = t('The query: {token}', { token: nameOf(self, token) });
    made.title.textContent = t('Layer {layer}: where each head looks', { layer });
    const count = made.faces.length, area = roomy ? Math.min(640, self.width - picture - 36) : self.width, across = Math.min(count, count <= 4 ? count : Math.ceil(count / 2) <= 6 && roomy ? Math.ceil(count / 2) : Math.floor(area / 84)), side = Math.min(150, area / across - 16);
    made.faces.forEach(({ canvas, button }, h) => {
      const line = values.subarray(h * tokens + skip, (h + 1) * tokens), context = fit(canvas, side, (side * rows * tall) / (cols * wide), self.density);
      context.imageSmoothingEnabled = false;
      context.drawImage(tinted(line, rows, cols, 'viridis', 0, bounds(line)[1] || 1), 0, 0, side, (side * rows * tall) / (cols * wide));
      canvas.setAttribute('aria-label', t('Attention of head {head}', { head: h + 1 }));
      button.setAttribute('aria-pressed', String(h + 1 === head));
      button.style.width = side + 8 + 'px';
    });
    this.chart(self, made.chart, layer);
  },

  /** The mean length of the patch tokens and of each prefix token, z_0 to z_L. */
  chart(self, canvas, layer) {
    const lines = Object.entries(self.summary.norms), width = Math.min(self.width, 760), height = 220, [left, right, top, bottom] = [46, 100, 10, 34], last = self.value.layers;
    const most = Math.max(...lines.flatMap(([, values]) => values)), context = fit(canvas, width, height, self.density), ink = self.colour('color'), font = self.colour('font-family');
    const x = (l) => left + (l / last) * (width - left - right), y = (value) => height - bottom - (value / (most || 1)) * (height - top - bottom);
    context.font = `12px ${font}`;
    context.textBaseline = 'middle';
    context.fillStyle = context.strokeStyle = ink;
    for (const value of ticks(0, most, 4)) {
      context.globalAlpha = 0.15;
      context.fillRect(left, y(value), width - left - right, 1);
      context.globalAlpha = 0.75;
      context.textAlign = 'right';
      context.fillText(number(value), left - 8, y(value));
    }
    context.textAlign = 'center';
    for (let l = 0; l <= last; l += Math.ceil(last / 12)) context.fillText(String(l), x(l), height - bottom + 14);
    context.fillText(t('after layer (0: z₀)'), (left + width - right) / 2, height - 6);
    context.globalAlpha = 0.12;
    context.fillRect(x(layer - 1), top, x(1) - x(0), height - top - bottom);
    const ends = [];
    lines.forEach(([name, values]) => {
      const patches = name === 'patches', colour = patches ? self.colour('--vv-accent') : ink;
      context.globalAlpha = patches || !name.startsWith('register') ? 1 : 0.35;
      context.strokeStyle = context.fillStyle = colour;
      context.lineWidth = 2;
      context.setLineDash(patches ? [] : [5, 3]);
      context.beginPath();
      values.forEach((value, l) => context.lineTo(x(l), y(value)));
      context.stroke();
      context.setLineDash([]);
      let at = y(values[last]);
      while (ends.some((other) => Math.abs(other - at) < 14)) at += at > height / 2 ? -14 : 14;
      ends.push(at);
      context.textAlign = 'left';
      context.fillText(lineName(name), x(last) + 8, at, right - 10);
    });
    context.globalAlpha = 1;
    canvas.setAttribute('aria-label', lines.map(([name, values]) => `${lineName(name)}: ${values.map((value) => number(value)).join(', ')}`).join('. '));
  },
};

export const lineName = (name) => (name === 'patches' ? t('patches (mean)') : tokenName(name));
