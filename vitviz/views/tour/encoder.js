// Steps 7 and 8: one row of attention in numbers; all heads of a layer, and the growing norms of the tokens.

import { tinted } from '../../frontend/colours.js';
import { unpacked } from '../../frontend/data.js';
import { button, div, el, fit, span, stack, thumb } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { bounds, number } from '../../frontend/numbers.js';
import { chartBeside } from '../../frontend/plotly_chart.js';
import { board, strip } from './board.js';
import {
  beside,
  dial,
  digits,
  first,
  folded,
  largest,
  nameOf,
  pair,
  plain,
  shapeOf,
  sheetOf,
  take,
  tokenTitle,
} from './parts.js';

/** Buttons that make a prefix token the query; patches are clicked in the image. */
function prefixChips(self) {
  const buttons = self.grid.prefix.map((name, token) =>
    button(tokenTitle(name), () => self.set('token', token)),
  );
  const group = el('div', { class: 'vv-buttons', role: 'group', 'aria-label': t('Or as query') }, ...buttons);
  const label = div('vv-label', span(t('Or as query')));
  const kind = { class: 'vv-field', hidden: !buttons.length, 'data-export': 'no' };
  const press = (one, token) => one.setAttribute('aria-pressed', String(token === self.settings.token));
  return { node: el('div', kind, label, group), show: () => buttons.forEach(press) };
}

const placed = (self, token) => (token >= first(self) ? token - first(self) : -1);

/** The keys shown in detail: the selected one, the strongest three, and the query itself. */
function shownKeys(self, weights) {
  const strongest = Array.from(weights.keys())
    .sort((a, b) => weights[b] - weights[a])
    .slice(0, 3);
  const picked = self.settings.keys === '' ? strongest[0] : Number(self.settings.keys);
  return { picked, keys: [...new Set([picked, ...strongest, self.settings.token])].slice(0, 5) };
}

export const attentionStep = {
  build(self) {
    const asks = board(self, { label: t('Pick the query.'), pick: take(self) });
    const answers = board(self, {
      label: t('How much the query takes from each patch. Pick a key.'),
      pick: (cell) => self.set('keys', String(cell + first(self))),
      tell: (cell) => t('weight {value}', { value: digits(made.worked.weights[cell + first(self)]) }),
    });
    const dials = [
      dial(self, 'layer', t('Layer'), self.value.layers),
      dial(self, 'head', t('Head'), self.value.heads),
    ];
    const chips = prefixChips(self);
    const asked = el('p', { class: 'vv-h' });
    const given = el('p', { class: 'vv-h' });
    const table = el('div');
    const strips = [t('q'), t('k'), t('Product')].map((label) => strip(self, { label }));
    const sum = el('p', { class: 'vv-sum' });
    const line = el('p', { class: 'vv-sum vv-line' });
    const lost = el('p', {
      class: 'vv-text',
      text: t(
        'This head is ablated: these are its original weights, but the model continued with the ' +
          'replacement.',
      ),
    });
    /** @type {any} */
    const made = { worked: null, asks, answers, dials, chips, asked, given, table, strips, sum, line, lost };
    const product = folded(t('All numbers of this product'), () => {
      const numbers = made.q.map((q, i) => [String(i + 1), ...[q, made.k[i], q * made.k[i]].map(digits)]);
      return sheetOf([t('Number'), 'q', 'k', 'q · k'], plain(numbers), 'vv-dense');
    });
    const keys = folded(t('All keys of this row'), () =>
      this.table(self, made.worked, [...made.worked.weights.keys()], 'vv-dense'),
    );
    made.folds = [product, keys];
    made.node = stack(
      div('vv-row', ...dials.map((one) => one.node), chips.node),
      pair(stack(asked, asks.node), stack(given, answers.node)),
      lost,
      table,
      line,
      el('div', { class: 'vv-stack', 'data-slide': 'no' }, ...strips.map((one) => one.node), sum),
      product.node,
      keys.node,
    );
    return made;
  },

  items: () => ['worked', 'keys'],

  table(self, w, keys, kind, picked = -1) {
    const bias = w.bias;
    const shifted = w.shift !== 0;
    const heads = [
      t('Key'),
      'q · k',
      t('× {scale}', { scale: number(w.scale, 6) }),
      ...(bias ? [t('+ bias')] : []),
      ...(shifted ? [t('− {largest}', { largest: digits(w.shift) })] : []),
      t('exp'),
      t('weight'),
    ];
    const rows = keys.map((j) => ({
      mark: j === picked ? 'vv-picked' : '',
      pick: picked < 0 ? null : () => self.set('keys', String(j)),
      cells: [
        nameOf(self, j),
        digits(w.products[j]),
        digits(w.products[j] * w.scale),
        ...(bias ? [digits(w.scores[j])] : []),
        ...(shifted ? [digits(w.scores[j] - w.shift)] : []),
        digits(w.powers[j]),
        digits(w.weights[j]),
      ],
    }));
    const empty = Array(heads.length - 3).fill('');
    const count = w.powers.length - keys.length;
    const sum = (list) => keys.reduce((total, j) => total + list[j], 0);
    const others = [w.total - sum(w.powers), 1 - sum(w.weights)].map(digits);
    if (count)
      rows.push({ mark: 'vv-rest', cells: [t('the other {count}', { count }), ...empty, ...others] });
    rows.push({ mark: 'vv-total', cells: [t('Sum'), ...empty, digits(w.total), '1'] });
    return sheetOf(heads, rows, kind);
  },

  draw(self, made) {
    const w = unpacked(self.data.worked);
    const { values, shape } = self.data.keys;
    const dim = shape[1];
    const { wide, width: whole, tall, large, across: room } = beside(self);
    const { picked, keys } = shownKeys(self, w.weights);
    const { token } = self.settings;
    const width = wide ? Math.min(320 * large, (whole - 36) / 2, tall * 0.6) : Math.min(whole, 340);
    made.worked = w;
    made.dials.forEach((one) => one.show());
    made.chips.show();
    made.lost.hidden = !w.replaced;
    made.asked.textContent = t('The query: {token}', { token: nameOf(self, token) });
    made.given.textContent = t('Its attention: layer {layer}, head {head}', self.settings);
    made.asks.draw({ width, mark: placed(self, token) });
    const weights = w.weights.slice(first(self));
    made.answers.draw({ width, weights, mark: placed(self, token), key: placed(self, picked) });
    made.table.replaceChildren(this.table(self, w, keys, '', picked));
    made.q = w.q;
    made.k = Array.from(values.subarray(picked * dim, (picked + 1) * dim));
    const products = made.q.map((q, i) => q * made.k[i]);
    const most = Math.max(largest(made.q), largest(made.k));
    const texts = [
      t('q of {token}: {count} numbers', { token: nameOf(self, token), count: dim }),
      t('k of {token}: {count} numbers', { token: nameOf(self, picked), count: dim }),
      t('their products'),
    ];
    [made.q, made.k, products].forEach((vector, i) => {
      made.strips[i].draw(vector, { width: room, most: i < 2 ? most : largest(products), text: texts[i] });
    });
    made.sum.textContent = `${t('sum of {count} products', { count: dim })} = ${digits(w.products[picked])}`;
    const score = w.scores[picked] - w.shift;
    const added = (w.bias ? ` + ${digits(w.bias[picked])}` : '') + (w.shift ? ` − ${digits(w.shift)}` : '');
    const power = digits(w.powers[picked]);
    const product = digits(w.products[picked]);
    made.line.textContent = [
      `${nameOf(self, picked)}:  ${product} × ${number(w.scale, 6)}${added} = ${digits(score)}`,
      `exp(${digits(score)}) = ${power}`,
      `${power} / ${digits(w.total)} = ${digits(w.weights[picked])}`,
    ].join(',  ');
    made.folds.forEach((fold) => fold.fill());
  },
};

export const layersStep = {
  build(self) {
    const layer = dial(self, 'layer', t('Layer'), self.value.layers);
    const chips = prefixChips(self);
    const from = board(self, { label: t('Pick the query.'), pick: take(self) });
    const title = el('p', { class: 'vv-h' });
    const heads = div('vv-pins vv-heads');
    const faces = Array.from({ length: self.value.heads }, (_, h) => {
      const canvas = el('canvas', { role: 'img' });
      const choose = () => self.set('head', h + 1);
      return { canvas, node: thumb(canvas, t('head {head}', { head: h + 1 }), choose) };
    });
    heads.append(...faces.map((face) => face.node));
    const chart = chartBeside(self);
    const asked = el('p', { class: 'vv-h' });
    const note = el('p', {
      class: 'vv-text',
      text: t('Brightness: relative to each head’s maximum. Click a head to use it in the previous step.'),
    });
    const node = stack(
      div('vv-row', layer.node, chips.node),
      pair(stack(asked, from.node), stack(title, heads, note)),
      chart.node,
    );
    return { node, layer, chips, from, title, faces, chart, asked };
  },
  items: () => ['heads', 'chart'],

  draw(self, made) {
    const { rows, cols, aspect } = shapeOf(self);
    const { values, shape } = self.data.heads;
    const tokens = shape[1];
    const { picture, wide: roomy, width, ceiling, large } = beside(self, 280);
    const skip = first(self);
    const { head, layer, token } = self.settings;
    made.layer.show();
    made.chips.show();
    made.from.draw({ width: picture, mark: placed(self, token) });
    made.asked.textContent = t('The query: {token}', { token: nameOf(self, token) });
    made.title.textContent = t('Layer {layer}: where each head attends', { layer });
    const count = made.faces.length;
    const area = roomy ? Math.min(640 * large, width - picture - 36) : width;
    const half = Math.ceil(count / 2);
    const many = half <= 6 && roomy ? half : Math.floor(area / (84 * large));
    const across = count <= 4 ? count : Math.min(count, many);
    const side = Math.min(150 * large, area / across - 16, (ceiling * 0.4) / Math.ceil(count / across));
    made.faces.forEach(({ canvas, node }, h) => {
      const line = values.subarray(h * tokens + skip, (h + 1) * tokens);
      const context = fit(canvas, side, side * aspect, self.density);
      const map = tinted(line, rows, cols, 'viridis', 0, bounds(line)[1] || 1);
      context.imageSmoothingEnabled = false;
      context.drawImage(map, 0, 0, side, side * aspect);
      canvas.setAttribute('aria-label', t('Attention of head {head}', { head: h + 1 }));
      node.setAttribute('aria-pressed', String(h + 1 === head));
      node.style.width = `${side + 8}px`;
    });
    const { width: whole, large: size } = beside(self);
    const figure = unpacked(self.data.chart);
    figure.levels.push({ value: layer, upright: true, name: '', colour: '#7d838e' });
    figure.keyed = innerWidth >= 768; // a phone has no space at the lines' ends, so a legend has the names
    made.chart.draw(figure, Math.min(whole, 760 * size), Math.min(220 * size, ceiling * 0.4));
  },
};
