// Parts of the steps of the tour: texts, formulas, tables, collapsible sections.

import { button, div, el, slider, stack } from '../../frontend/elements.js';
import { patchName, t, tokenName } from '../../frontend/i18n.js';
import { number, tenTo } from '../../frontend/numbers.js';
import { reach } from '../../frontend/shared_scale.js';

/** The grid, a patch's height and width, and the input's aspect ratio (height / width). */
export function shapeOf({ grid: { rows, cols, patch } }) {
  const [tall, wide] = patch;
  return { rows, cols, tall, wide, aspect: (rows * tall) / (cols * wide) };
}
/** Draws a patch of the model's input into a box [x, y, width, height] without smoothing. */
export function drawPatch(self, context, patch, box) {
  const { cols, tall, wide } = shapeOf(self);
  context.imageSmoothingEnabled = false;
  const [left, top] = [(patch % cols) * wide, Math.floor(patch / cols) * tall];
  context.drawImage(self.data.input, left, top, wide, tall, ...box);
}
/** A sentence whose values are numbers, or words to translate. */
export function told(text, values) {
  const said = ([name, value]) => [name, typeof value === 'string' ? t(value) : value];
  return t(text, Object.fromEntries(Object.entries(values || {}).map(said)));
}
export const first = (self) => self.grid.prefix.length;
const centre = ({ grid }) => Math.floor(grid.rows / 2) * grid.cols + Math.floor(grid.cols / 2);
export const patchOf = (self) =>
  self.settings.token >= first(self) ? self.settings.token - first(self) : centre(self);
export const nameOf = (self, token) =>
  token < first(self) ? tokenTitle(self.grid.prefix[token]) : patchName(token - first(self));
export const tokenTitle = (name) =>
  name === 'class' ? t('Class token') : name === 'distillation' ? t('Distillation token') : tokenName(name);
export const largest = (values) => reach(values) || 1;
/** A number to calculate with: six digits, trailing zeros included. */
export function digits(value) {
  if (value === 0 || !Number.isFinite(value)) return number(value);
  const [head, power] = value.toPrecision(6).split('e');
  const size = Math.abs(value);
  const text = size < 1e-4 || size >= 1e6 ? value.toExponential(5).split('e') : [head, power];
  return text[0].replace('-', '−') + (text[1] ? tenTo(Number(text[1])) : '');
}

/** The text of a sum of products and a bias. */
export function summed(products, bias) {
  const total = products.reduce((a, b) => a + b, 0);
  const added = t('sum of {count} products', { count: products.length });
  return `${added} ${digits(total)} + ${t('bias')} ${digits(bias)} = ${digits(total + bias)}`;
}

/** A formula from plain text: _{} is a subscript, ^{} a superscript; adjacent ones are stacked. */
export function formula(text) {
  const node = el('p', { class: 'vv-formula' });
  for (const part of text.split(/([_^]\{[^}]*\})/).filter(Boolean)) {
    const mark = /^([_^])\{(.*)\}$/.exec(part);
    const last = node.lastChild;
    if (!mark) node.append(part);
    else if (mark[1] === '^' && last?.tagName === 'SUB')
      last.replaceWith(el('span', { class: 'vv-both' }, el('sup', { text: mark[2] }), last.cloneNode(true)));
    else node.append(el(mark[1] === '_' ? 'sub' : 'sup', { text: mark[2] }));
  }
  return node;
}

/** A sentence with E_pos typeset as in the formulas. */
export const prose = (text) =>
  text
    .split(/(E_pos)/)
    .map((part) => (part === 'E_pos' ? el('span', {}, 'E', el('sub', { text: 'pos' })) : part));

/** Table rows without further options. */
export const plain = (lines) => lines.map((cells) => ({ cells }));

/** A table whose rows become cards on narrow screens. Cells are texts or elements. */
export function sheetOf(heads, rows, kind = '') {
  const cell = (value, i, pick) => {
    const picks = pick && !i && typeof value === 'string';
    return el('td', { 'data-label': heads[i] }, picks ? button(value, null, { class: 'vv-pick' }) : value);
  };
  const row = ({ cells, mark, pick }) => {
    const kinds = [mark, pick && 'vv-can'].filter(Boolean).join(' ') || null;
    return el('tr', { class: kinds, onclick: pick }, ...cells.map((value, i) => cell(value, i, pick)));
  };
  const titles = heads.map((text) => el('th', { scope: 'col', text }));
  const head = el('thead', {}, el('tr', {}, ...titles));
  return el('table', { class: `vv-table ${kind}` }, head, el('tbody', {}, ...rows.map(row)));
}

/** A collapsed section whose content is built when opened. */
export function folded(text, make) {
  const body = div('vv-folded');
  const fill = () => node.open && body.replaceChildren(make());
  const kind = { class: 'vv-fold', 'data-export': 'no', ontoggle: fill };
  const node = el('details', kind, el('summary', { text }), body);
  return { node, fill };
}

/** A slider of the tour for one of its settings, counted from 1. */
export function dial(self, name, label, maximum) {
  const { head, input, show } = slider(label, { min: 1, max: maximum }, (value) => self.set(name, value));
  const kind = { class: 'vv-field vv-slider', 'data-name': name, 'data-export': 'no' };
  const said = (value) => t('{value} of {count}', { value, count: maximum });
  return {
    node: el('div', { ...kind, hidden: maximum < 2 }, head, input),
    show: () => show(self.settings[name], said(self.settings[name])),
  };
}

/** Selects a patch for all steps. */
export const take = (self) => (cell) => self.set('token', cell + first(self));
/**
 * The space of a step: `width` and `tall`; the width of an image with something beside it (`picture`), of
 * that (`rest`), and of content across both (`across`). A slide has its own space, ends at its `ceiling`, and
 * scales everything with its font size.
 */
export const beside = (self, most = 300) => {
  const { width, tall, slide } = self.ui.space;
  const large = slide ? self.zoom : 1;
  const wide = slide || width >= 720;
  const picture = Math.min(most * large, slide ? (width - 36) / 2 : width, tall * 0.7);
  const rest = Math.min(760 * large, wide ? width - picture - 36 : width);
  const ceiling = slide ? tall : Infinity;
  return { width, tall, slide, ceiling, wide, large, picture, rest, across: Math.min(900 * large, width) };
};
export const pair = (...parts) => div('vv-tour-pair', ...parts);
export const captioned = (text, ...parts) => stack(el('p', { class: 'vv-h', text }), ...parts);
