// Settings as fields: every control that a view declares with a label becomes a field.

import { ramp, tables } from './colours.js';
import { button, div, el, selection, slider, span, stack } from './elements.js';
import { patchName, t, tokenName } from './i18n.js';
import { number } from './numbers.js';

let fields = 0;

/**
 * View -> whether its advanced settings are unfolded, until the page is reloaded.
 * @type {Map<string, boolean>}
 */
const unfolded = new Map();

function radios(control, self, change) {
  const name = `vv-${self.name}-${control.name}-${++fields}`;
  const maps = control.options.every(([value]) => tables[value]);
  const items = control.options.map(([value, text]) => {
    const input = el('input', { type: 'radio', name, value, onchange: () => change(value) });
    const face = span(t(text));
    if (maps) face.prepend(ramp(value, 'vv-ramp'));
    return el('label', {}, input, face);
  });
  const kind = maps ? 'vv-maps' : 'vv-segments';
  const node = el('div', { class: kind, role: 'radiogroup', 'aria-label': t(control.label) }, ...items);
  const show = (value) => {
    for (const { firstChild } of items) firstChild.checked = firstChild.value === value;
  };
  return { node, show };
}

function dropdown(control, _self, change) {
  const told = { 'aria-label': t(control.label), onchange: () => change(node.value) };
  const options = control.options.map(([value, text]) => [value, t(text)]);
  const node = selection(told, options);
  const show = (value) => (node.value = value);
  return { node, show };
}

function range({ label, minimum, maximum, step }, _self, change, output) {
  const { input, show } = slider(t(label), { min: minimum, max: maximum, step, output }, change);
  return { node: input, show: (value) => show(value, number(Number(value))) };
}

/** Two thumbs on one track: the first and the last layer, counted from 1. */
function between(_control, self, change, output) {
  const last = self.value.layers;
  const moved = () => {
    const ends = [Number(low.value), Number(high.value)].sort((a, b) => a - b);
    change(ends[0] === 1 && ends[1] === last ? '' : ends.join('-'));
  };
  const thumb = (label) =>
    el('input', { type: 'range', min: 1, max: last, step: 1, 'aria-label': label, oninput: moved });
  const low = thumb(t('First layer'));
  const high = thumb(t('Last layer'));
  const node = div('vv-span', low, high);
  return {
    node,
    show: (value) => {
      const [from, to] = (value || `1-${last}`).split('-').map(Number);
      const at = (layer) => `${last > 1 ? ((layer - 1) / (last - 1)) * 100 : 0}%`;
      if (Math.min(low.value, high.value) !== from || Math.max(low.value, high.value) !== to)
        [low.value, high.value] = [from, to];
      node.style.setProperty('--vv-from', at(from));
      node.style.setProperty('--vv-to', at(to));
      output.textContent = `${from}–${to}`;
    },
  };
}

function query(control, self, change, output) {
  const auto = self.value.summary?.auto;
  const names = [
    ['auto', t('Auto')],
    ['mean', t('Mean')],
    ...self.value.grid.prefix.map((name) => [name, tokenName(name)]),
  ];
  const buttons = names.map(([value, text]) => button(text, () => change(value), { 'data-value': value }));
  const group = el('div', { class: 'vv-buttons', role: 'group', 'aria-label': t(control.label) }, ...buttons);
  const hint = el('p', { class: 'vv-hint', text: t('Or click a patch in the image.') });
  const show = (value) => {
    buttons.forEach((one) => one.setAttribute('aria-pressed', one.dataset.value === value));
    const asks = value === 'auto' && auto ? t(auto) : '';
    output.textContent = /^\d+$/.test(value) ? patchName(Number(value)) : asks;
  };
  return { node: stack(group, hint), show };
}

function field(control, self, change) {
  const idle = control.name === 'difference' && !self.value.changed;
  if (!control.label || idle) return { control, node: null, show: () => {} };
  const output = el('output', { class: 'vv-output' });
  const length = () => control.options.reduce((sum, [, text]) => sum + t(text).length + 3, 0);
  const make =
    { slider: range, layers: between, query }[control.kind] ||
    (length() <= (self.view.side ? 34 : 66) || control.options.every(([value]) => tables[value])
      ? radios
      : dropdown);
  const part = make(control, self, change, output);
  const info = control.info ? el('p', { class: 'vv-info', text: t(control.info), hidden: true }) : null;
  const unfold = () => {
    info.hidden = !info.hidden;
    more.setAttribute('aria-expanded', String(!info.hidden));
  };
  const folded = { class: 'vv-more', 'aria-expanded': 'false', 'aria-label': t('What is this?') };
  const more = info && button('?', unfold, folded);
  const head = div('vv-label', span(t(control.label)), more, output);
  const kind = { class: `vv-field vv-${control.kind}`, 'data-name': control.name };
  return { control, show: part.show, node: el('div', kind, head, part.node, info) };
}

/**
 * All fields of a view, the advanced ones in a fold; `show()` updates them from the settings of `self`.
 * Fields without effect are hidden. The fold opens when an advanced setting leaves its default, by a link,
 * say.
 */
export function toolbar(self, change) {
  const every = self.value.controls.map((control) => field(control, self, (value) => change(control, value)));
  const parts = every.filter((part) => part.node);
  const nodes = (advanced) =>
    parts.filter((part) => part.control.advanced === advanced).map(({ node }) => node);
  const folded = nodes(true);
  const title = el('summary');
  const ontoggle = () => unfolded.set(self.name, more.open);
  const kind = { class: 'vv-advanced', open: unfolded.get(self.name), ontoggle };
  const more = el('details', kind, title, div('vv-folded', ...folded));
  let before = 0; // number of changed settings in the fold
  return {
    nodes: [...nodes(false), ...(folded.length ? [more] : [])],
    show() {
      const idle = self.view.idle?.(self) ?? [];
      let count = 0;
      for (const { control, node, show } of parts) {
        const value = self.settings[control.name];
        show(value);
        const only = Object.entries(control.only);
        const applies = !only.length || only.some(([name, of]) => of.includes(self.settings[name]));
        node.hidden = !applies || idle.includes(control.name);
        if (control.advanced && !node.hidden && String(value) !== String(control.default)) count += 1;
      }
      more.hidden = folded.every((node) => node.hidden);
      if (count > before) more.open = true;
      before = count;
      title.textContent = count ? t('More settings ({count} changed)', { count }) : t('More settings');
    },
  };
}
