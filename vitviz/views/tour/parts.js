// What the steps of the tour are made of: words, formulas, pictures in patches, vectors as strips, tables, foldings.

import { tinted } from '../../canvas/colours.js';
import { array, picture } from '../../canvas/data.js';
import { el, fit } from '../../canvas/elements.js';
import { patchName, placeName, tokenName } from '../../canvas/names.js';
import { bounds, number } from '../../canvas/numbers.js';
import { cells, outline } from '../../canvas/pointer.js';
import { tip } from '../../canvas/tip.js';
import { t } from '../../canvas/words.js';

export const unpack = (array) => JSON.parse(new TextDecoder().decode(array.values));
export const told = (text, values) => t(text, Object.fromEntries(Object.entries(values || {}).map(([name, value]) => [name, typeof value === 'string' ? t(value) : value])));
export const first = (self) => self.grid.prefix.length;
export const countOf = (self) => self.grid.rows * self.grid.cols;
export const centre = ({ grid }) => Math.floor(grid.rows / 2) * grid.cols + Math.floor(grid.cols / 2);
export const patchOf = (self) => (self.settings.token >= first(self) ? self.settings.token - first(self) : centre(self));
export const nameOf = (self, token) => (token < first(self) ? tokenTitle(self.grid.prefix[token]) : patchName(self.grid, token - first(self)));
export const tokenTitle = (name) => (name === 'class' ? t('Class token') : name === 'distillation' ? t('Distillation token') : tokenName(name));
export const largest = (values) => { const [low, high] = bounds(values); return Math.max(-low, high) || 1; };
/** A number to reckon with: six digits, none left out. */
export function digits(value) {
  if (value === 0 || !Number.isFinite(value)) return number(value);
  const [head, power] = value.toPrecision(6).split('e'), size = Math.abs(value), text = size < 1e-4 || size >= 1e6 ? value.toExponential(5).split('e') : [head, power];
  return (text[0] + (text[1] ? ` · 10^${Number(text[1])}` : '')).replace(/-/g, '−');
}

/** A formula from plain text: _{} below, ^{} above, one over the other where they meet. */
export function formula(text) {
  const node = el('p', { class: 'vv-formula' });
  for (const part of text.split(/([_^]\{[^}]*\})/).filter(Boolean)) {
    const mark = /^([_^])\{(.*)\}$/.exec(part), last = node.lastChild;
    if (!mark) node.append(part);
    else if (mark[1] === '^' && last?.tagName === 'SUB') last.replaceWith(el('span', { class: 'vv-both' }, el('sup', { text: mark[2] }), last.cloneNode(true)));
    else node.append(el(mark[1] === '_' ? 'sub' : 'sup', { text: mark[2] }));
  }
  return node;
}

/** A sentence in which E_pos stands as it does in the formulas. */
export const prose = (text) => text.split(/(E_pos)/).map((part) => (part === 'E_pos' ? el('span', {}, 'E', el('sub', { text: 'pos' })) : part));

/** The model's input in its patches; `draw` lays weights over it and outlines the patches that are meant. */
export function board(self, { label, pick, tell }) {
  const canvas = el('canvas'), plot = el('div', { class: 'vv-plot' }, canvas), chosen = outline(plot, 'vv-pinned'), second = outline(plot, 'vv-key'), spot = outline(plot);
  spot.node.dataset.export = 'no';
  let pitch = [0, 0], size = null, marked = -1;
  const put = (mark, cell) => (cell >= 0 ? mark.put((cell % self.grid.cols) * pitch[0], Math.floor(cell / self.grid.cols) * pitch[1], pitch[0], pitch[1]) : mark.hide());
  const lines = (cell) => [patchName(self.grid, cell), placeName(self.grid, cell), ...(tell ? [tell(cell)] : [])];
  cells(self, canvas, {
    place: () => size,
    label: () => label,
    name: (cell) => lines(cell).join(', '),
    start: () => marked,
    hover: (cell, event) => { put(spot, cell); tip.show(event, ...lines(cell)); },
    leave: () => spot.hide(),
    pick,
  });
  const draw = ({ width, weights, order, gap = 0, mark = -1, key = -1, lined = true }) => {
    const { rows, cols, patch: [tall, wide] } = self.grid, height = (width * rows * tall) / (cols * wide), context = fit(canvas, width, height, self.density);
    pitch = [width / cols, height / rows];
    size = { rows, cols, x: 0, y: 0, width, height };
    context.imageSmoothingEnabled = false;
    for (let i = 0; i < rows * cols; i++) {
      const from = order ? order[i] : i, shrink = gap / 2, [w, h] = pitch;
      context.drawImage(self.data.picture, (from % cols) * wide, Math.floor(from / cols) * tall, wide, tall, (i % cols) * w + shrink, Math.floor(i / cols) * h + shrink, w - gap + (gap ? 0 : 0.5), h - gap + (gap ? 0 : 0.5));
    }
    if (weights) {
      context.globalAlpha = 0.75;
      context.drawImage(tinted(weights, rows, cols, 'viridis', 0, bounds(weights)[1] || 1), 0, 0, width, height);
      context.globalAlpha = 1;
    } else if (lined && !gap) {
      context.fillStyle = 'rgb(255 255 255 / .45)';
      for (let c = 1; c < cols; c++) context.fillRect(c * pitch[0] - 0.5, 0, 1, height);
      for (let r = 1; r < rows; r++) context.fillRect(0, r * pitch[1] - 0.5, width, 1);
    }
    marked = mark;
    put(chosen, mark);
    put(second, key);
  };
  return { node: plot, draw };
}

/** A vector as a strip of colours, wrapped to the width; every number under the pointer, the picked one outlined. */
export function strip(self, { label, name, pick, touched, extra }) {
  const canvas = el('canvas'), plot = el('div', { class: 'vv-plot' }, canvas), spot = outline(plot), chosen = outline(plot, 'vv-pinned');
  const title = el('span', { text: label }), range = el('span', { class: 'vv-range' }), node = el('div', { class: 'vv-strip' }, el('p', { class: 'vv-striplabel' }, title, range), plot);
  spot.node.dataset.export = 'no';
  let state = null, marked = -1;
  const put = (mark, i) => (i >= 0 ? mark.put((i % state.cols) * state.cell, Math.floor(i / state.cols) * state.down, Math.max(3, state.cell), state.tall) : mark.hide());
  const lines = (i) => [digits(state.values[i]), name ? name(i) : t('Number {index} of {count}', { index: i + 1, count: state.values.length }), ...(extra ? [extra(i)] : [])];
  cells(self, canvas, {
    place: () => state,
    label: () => title.textContent,
    name: (i) => (i < state.values.length ? lines(i).join(', ') : ''),
    start: () => marked,
    hover: (i, event) => {
      if (i >= state.values.length) { tip.hide(); return spot.hide(); }
      put(spot, i);
      touched?.(i);
      tip.show(event, ...lines(i));
    },
    leave: () => { spot.hide(); touched?.(-1); },
    pick: pick && ((i) => i < state.values.length && pick(i)),
  });
  const draw = (values, { width, most = largest(values), mark = -1, text }) => {
    const count = values.length, rows = Math.max(1, Math.ceil((count * 3.5) / width)), cols = Math.ceil(count / rows), cell = Math.min(12, width / cols);
    const tall = rows > 6 ? 8 : rows > 2 ? 12 : 18, down = tall + 2, context = fit(canvas, cols * cell, rows * down - 2, self.density);
    state = { values, rows, cols, cell, tall, down, x: 0, y: 0, width: cols * cell, height: rows * down };
    context.imageSmoothingEnabled = false;
    for (let r = 0; r < rows; r++) {
      const part = values.slice(r * cols, (r + 1) * cols);
      if (part.length) context.drawImage(tinted(part, 1, part.length, 'cividis', -most, most), 0, r * down, part.length * cell, tall);
    }
    if (text) title.textContent = text;
    range.textContent = t('colours from {low} to {high}', { low: number(-most), high: number(most) });
    marked = mark;
    put(chosen, mark);
  };
  return { node, draw };
}

/** A table whose rows become cards where there is little room. Cells are texts or elements. */
export function sheetOf(heads, rows, kind = '') {
  const cell = (value, i, pick) => el('td', { 'data-label': heads[i] }, pick && !i && !(value instanceof Node) ? el('button', { type: 'button', class: 'vv-pick', text: value }) : value instanceof Node ? value : value || null);
  return el('table', { class: 'vv-table ' + kind },
    el('thead', {}, el('tr', {}, ...heads.map((text) => el('th', { scope: 'col', text })))),
    el('tbody', {}, ...rows.map(({ cells: line, mark, pick }) => el('tr', { class: [mark, pick && 'vv-can'].filter(Boolean).join(' ') || null, onclick: pick }, ...line.map((value, i) => cell(value, i, pick))))));
}

/** Folded away until asked for; made when it is opened. */
export function folded(text, make) {
  const body = el('div', { class: 'vv-folded' }), node = el('details', { class: 'vv-fold', 'data-export': 'no', ontoggle: () => fill() }, el('summary', { text }), body);
  const fill = () => { if (node.open) body.replaceChildren(make()); };
  return { node, fill };
}

/** A slider of the tour's own: one of its settings, counted from 1. */
export function dial(self, name, label, maximum) {
  const output = el('output', { class: 'vv-output' }), input = el('input', { type: 'range', min: 1, max: maximum, step: 1, 'aria-label': label, oninput: () => self.set(name, Number(input.value)) });
  const node = el('div', { class: 'vv-field vv-slider', 'data-name': name, hidden: maximum < 2, 'data-export': 'no' }, el('div', { class: 'vv-label' }, el('span', { text: label }), output), input);
  return { node, show() {
    const value = self.settings[name];
    input.value = value;
    input.style.setProperty('--vv-fill', ((value - 1) / (maximum - 1 || 1)) * 100 + '%');
    output.textContent = t('{value} of {count}', { value, count: maximum });
  } };
}

/** A chosen patch goes along through all steps. */
export const take = (self) => (cell) => self.set('token', cell + first(self));
/** The width for a picture beside something else, and for what stands beside or below it. */
export const beside = (self, most = 300) => {
  const wide = self.width >= 720, picture = Math.min(most, self.width, self.tall * 0.7);
  return { wide, picture, rest: Math.min(760, wide ? self.width - picture - 36 : self.width) };
};
export const pair = (...parts) => el('div', { class: 'vv-tour-pair' }, ...parts);
export const stack = (...parts) => el('div', { class: 'vv-stack' }, ...parts);
export const captioned = (text, ...parts) => el('div', { class: 'vv-stack vv-tight' }, el('p', { class: 'vv-h', text }), ...parts);
