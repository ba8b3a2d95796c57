// Settings as fields: each control that a view declared with a label becomes one.

import { tables, tinted } from './colours.js';
import { el } from './elements.js';
import { patchName, tokenName } from './names.js';
import { number } from './numbers.js';
import { t } from './words.js';

let fields = 0;

function radios(control, self, change) {
  const name = `vv-${self.name}-${control.name}-${++fields}`;
  const maps = control.options.every(([value]) => tables[value]);
  const items = control.options.map(([value, text]) => {
    const input = el('input', { type: 'radio', name, value, onchange: () => change(value) });
    const face = el('span', { text: t(text) });
    if (maps) face.prepend(ramp(value));
    return el('label', {}, input, face);
  });
  const node = el(
    'div',
    { class: maps ? 'vv-maps' : 'vv-segments', role: 'radiogroup', 'aria-label': t(control.label) },
    ...items,
  );
  return {
    node,
    show: (value) =>
      items.forEach((item) => {
        item.firstChild.checked = item.firstChild.value === value;
      }),
  };
}

function ramp(map) {
  const values = Float32Array.from({ length: 64 }, (_, i) => i);
  const canvas = tinted(values, 1, 64, map, 0, 63);
  canvas.className = 'vv-ramp';
  return canvas;
}

function dropdown(control, _self, change) {
  const node = el(
    'select',
    { 'aria-label': t(control.label), onchange: () => change(node.value) },
    ...control.options.map(([value, text]) => el('option', { value, text: t(text) })),
  );
  return {
    node,
    show: (value) => {
      node.value = value;
    },
  };
}

function slider(control, _self, change, output) {
  const node = el('input', {
    type: 'range',
    min: control.minimum,
    max: control.maximum,
    step: control.step,
    'aria-label': t(control.label),
    oninput: () => change(Number(node.value)),
  });
  return {
    node,
    show: (value) => {
      node.value = value;
      node.style.setProperty(
        '--vv-fill',
        `${((value - control.minimum) / (control.maximum - control.minimum || 1)) * 100}%`,
      );
      output.textContent = number(Number(value));
    },
  };
}

/** Two thumbs on one track: the first and the last layer, counted from 1. */
function span(_control, self, change, output) {
  const last = self.value.layers;
  const moved = () => {
    const ends = [Number(low.value), Number(high.value)].sort((a, b) => a - b);
    change(ends[0] === 1 && ends[1] === last ? '' : ends.join('-'));
  };
  const thumb = (label) =>
    el('input', { type: 'range', min: 1, max: last, step: 1, 'aria-label': label, oninput: moved });
  const low = thumb(t('First layer'));
  const high = thumb(t('Last layer'));
  const node = el('div', { class: 'vv-span' }, low, high);
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
  const buttons = names.map(([value, text]) =>
    el('button', { type: 'button', 'data-value': value, text, onclick: () => change(value) }),
  );
  const node = el(
    'div',
    { class: 'vv-stack vv-tight' },
    el('div', { class: 'vv-buttons', role: 'group', 'aria-label': t(control.label) }, ...buttons),
    el('p', { class: 'vv-hint', text: t('Or click a patch in the picture.') }),
  );
  return {
    node,
    show: (value) => {
      buttons.forEach((button) => button.setAttribute('aria-pressed', button.dataset.value === value));
      output.textContent = /^\d+$/.test(value)
        ? patchName(Number(value))
        : value === 'auto' && auto
          ? t(auto)
          : '';
    },
  };
}

function field(control, self, change) {
  const idle = control.name === 'difference' && !self.value.changed;
  if (!control.label || idle) return { control, node: null, show: () => {} };
  const output = el('output', { class: 'vv-output' });
  const length = () => control.options.reduce((sum, [, text]) => sum + t(text).length + 3, 0);
  const make =
    { slider, layers: span, query }[control.kind] ||
    (length() <= (self.view.side ? 34 : 66) || control.options.every(([value]) => tables[value])
      ? radios
      : dropdown);
  const part = make(control, self, change, output);
  const info = control.info ? el('p', { class: 'vv-info', text: t(control.info), hidden: true }) : null;
  const more =
    info &&
    el('button', {
      type: 'button',
      class: 'vv-more',
      'aria-expanded': 'false',
      'aria-label': t('What is this?'),
      text: '?',
      onclick: () => {
        info.hidden = !info.hidden;
        more.setAttribute('aria-expanded', String(!info.hidden));
      },
    });
  const head = el('div', { class: 'vv-label' }, el('span', { text: t(control.label) }), more, output);
  return {
    control,
    show: part.show,
    node: el(
      'div',
      { class: `vv-field vv-${control.kind}`, 'data-name': control.name },
      head,
      part.node,
      info,
    ),
  };
}

/** All fields of a view; `show()` puts the settings of `self` into them. */
export function toolbar(self, change) {
  const parts = self.value.controls.map((control) => field(control, self, (value) => change(control, value)));
  return {
    nodes: parts.map((part) => part.node).filter(Boolean),
    show: () =>
      parts.forEach((part) => {
        part.show(self.settings[part.control.name]);
        part.node?.classList.toggle(
          'vv-idle',
          Boolean(self.view.idle?.(self.settings, self).includes(part.control.name)),
        );
      }),
  };
}
