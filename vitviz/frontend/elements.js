// Builders of elements, from spans to sliders and progress rows; and canvases sharp at any pixel density.

import { t } from './i18n.js';
import { scored } from './numbers.js';

/**
 * Makes an element: `text` is its text, `on…` are listeners, the rest attributes; null, undefined and false
 * are skipped.
 */
export function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'text') node.textContent = value;
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child || child === 0));
  return node;
}

export const button = (text, run, attributes, ...children) =>
  el('button', { type: 'button', text, onclick: run, ...attributes }, ...children);

export const div = (kind, ...children) => el('div', { class: kind }, ...children);

/**
 * A select element; each option has a value and, optionally, a text; `chosen` is the selected value.
 * @param {object} attributes @param {any[]} options @param {any} [chosen]
 */
export function selection(attributes, options, chosen) {
  const pairs = options.map((one) => [one].flat());
  const listed = pairs.map(([value, text = value]) =>
    el('option', { value, text, selected: value === chosen }),
  );
  return el('select', attributes, ...listed);
}

/**
 * A button that, on a phone, unfolds the part behind it through a style rule; `turned` gets the new state.
 */
export function fold(text, turned = (_open) => {}) {
  const turn = () => {
    const open = made.getAttribute('aria-expanded') !== 'true';
    made.setAttribute('aria-expanded', String(open));
    turned(open);
  };
  const made = button(text, turn, { class: 'vv-unfold', 'aria-expanded': 'false' });
  return made;
}

/**
 * A button and the menu that it opens (WAI-ARIA's menu button); `items` are buttons and links. Arrow keys,
 * Home and End move; Escape, Tab and a click elsewhere close. The browser's popover lies above all parts that
 * clip.
 */
export function menu(text, items, attributes) {
  const kind = { class: 'vv-menu', role: 'menu', popover: 'auto', 'data-export': 'no' };
  const list = el('div', { ...kind, 'aria-label': text }, ...items);
  const closed = { 'aria-haspopup': 'menu', 'aria-expanded': 'false' };
  const made = button(text, null, { ...attributes, ...closed });
  let first = 0; // the item that the menu opens at
  const focus = (at) => {
    const shown = items.filter((item) => item.getClientRects().length);
    shown.at(at % shown.length)?.focus();
  };
  for (const item of items) [item.role, item.tabIndex] = ['menuitem', -1];
  made.popoverTargetElement = list;
  made.addEventListener('keydown', (event) => {
    if (!['ArrowDown', 'ArrowUp'].includes(event.key)) return;
    event.preventDefault();
    first = event.key === 'ArrowUp' ? -1 : 0;
    list.showPopover({ source: made });
  });
  list.addEventListener('beforetoggle', () => {
    const { top, bottom, left, right } = made.getBoundingClientRect();
    const { clientWidth: width, clientHeight: height } = document.documentElement;
    const [above, below] = [top, height - bottom];
    const across = left + right > width ? { right: `${width - right}px` } : { left: `${left}px` };
    const along = above > below ? { bottom: `${height - top + 4}px` } : { top: `${bottom + 4}px` };
    const maxHeight = `${Math.max(above, below) - 12}px`;
    Object.assign(list.style, { inset: 'auto', ...across, ...along, maxHeight });
  });
  list.addEventListener('toggle', () => {
    const open = list.matches(':popover-open');
    made.setAttribute('aria-expanded', String(open));
    if (open) focus(first);
    first = 0;
  });
  list.addEventListener('click', () => list.matches(':popover-open') && list.hidePopover());
  list.addEventListener('keydown', (event) => {
    const at = items.filter((item) => item.getClientRects().length).indexOf(origin(event));
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (event.key === 'Tab') list.hidePopover();
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    focus(next);
  });
  return [made, list];
}

/** Shows a text in a node, or hides the node if the text is empty. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text; // otherwise restyled in vain
  return Object.assign(node, { hidden: !text });
}

export const span = (text) => el('span', { text });

/** Parts stacked vertically. */
export const stack = (...children) => div('vv-stack', ...children);

export const figure = (canvas, text) => el('figure', {}, div('vv-plot', canvas), el('figcaption', { text }));

/** A selectable thumbnail with its name below. */
export const thumb = (drawn, text, run, attributes) =>
  button('', run, { class: 'vv-thumb', ...attributes }, drawn, span(text));

/** An SVG element. */
export function svg(tag, attributes, text) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== undefined) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/**
 * The target of an event. Documents and text nodes are possible too, so call methods with `?.`.
 * @type {(event: Event) => any}
 */
export const origin = (event) => event.target;

/**
 * The first match of a selector.
 * @type {(selector: string) => any}
 */
export const seek = (selector) => document.querySelector(selector);
/** @type {(selector: string) => any[]} */
export const seekAll = (selector) => [...document.querySelectorAll(selector)];

/** Runs `run` when one of these attributes changes on a node or, by default, below it. */
export const whenChanged = (node, attributeFilter, run, subtree = true) =>
  new MutationObserver(run).observe(node, { subtree, attributes: true, attributeFilter });

/**
 * Sets a data attribute on an ancestor for the style sheet. `:has()` would do the same, but the browser would
 * then restyle the whole ancestor at every change inside it.
 */
export const marked = (node, name, on) => node?.toggleAttribute(`data-${name}`, Boolean(on));

/** True if the node takes typed text, so that keys and pasted content belong to it. */
export const typing = (node) =>
  Boolean(node?.closest?.('input:not([type=range], [type=radio]), select, textarea, [contenteditable=true]'));

/** An off-screen canvas. */
export function sheet(width, height) {
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.round(width));
  canvas.height = Math.max(1, Math.round(height));
  return canvas;
}

/**
 * The 2D context of a canvas.
 * @type {(canvas: HTMLCanvasElement, settings?: CanvasRenderingContext2DSettings)
 *   => CanvasRenderingContext2D}
 */
export const pen = (canvas, settings) => /** @type {any} */ (canvas.getContext('2d', settings));

/** Sizes a canvas for `width` x `height` CSS pixels; returns its cleared context, scaled to CSS pixels. */
export function fit(canvas, width, height, ratio) {
  const w = Math.max(1, Math.round(width * ratio));
  const h = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = pen(canvas);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.globalAlpha = 1; // a canvas that keeps its size keeps the last drawing's state
  context.clearRect(0, 0, width, height);
  return context;
}

/** A slider's `head` and `input`; `show(value, text, most)` sets the value and its text. */
export function slider(
  label,
  { min, max = min, step = 1, output = el('output', { class: 'vv-output' }) },
  change,
) {
  const oninput = () => change(Number(input.value));
  const input = el('input', { type: 'range', min, max, step, 'aria-label': label, oninput });
  const head = div('vv-label', span(label), output);
  const show = (value, text, most = max) => {
    [input.max, input.value, output.textContent] = [String(most), String(value), text];
    input.style.setProperty('--vv-fill', `${(100 * (value - min)) / (most - min || 1)}%`);
  };
  return { head, input, show };
}

/** A fraction as a bar. */
export const track = (share) =>
  el('span', { class: 'vv-track' }, el('span', { style: `width:${100 * share}%` }));

/** A row per [name, score]; regression values have no bar. */
export function tops(likeliest, headType) {
  const bar = (score) => (headType === 'value' ? '' : track(score));
  return likeliest.map(([name, score]) =>
    div('vv-top', span(t(name)), span(scored(score, headType)), bar(score)),
  );
}

/**
 * Button, progress bar and status text of a computation; `node` holds all three. `show` sets whether it is
 * running, whether it is complete, the fraction done, the button's label, and the status text.
 */
export function running(label, toggle) {
  const quiet = { 'data-export': 'no', hidden: true };
  const go = el('button', { type: 'button', class: 'vv-go', onclick: toggle, ...quiet });
  const bar = el('progress', { max: 1, value: 0, 'aria-label': label, ...quiet });
  const said = el('span', { class: 'vv-text vv-trying', role: 'status', ...quiet });
  const show = ({ on, whole, share, start, text }) => {
    go.hidden = whole && !on;
    go.textContent = on ? t('Stop') : share ? t('Continue') : start;
    bar.hidden = !on && (whole || !share);
    bar.value = share;
    say(said, text);
  };
  return { go, bar, said, node: el('p', { class: 'vv-asked' }, go, bar, said), show };
}
