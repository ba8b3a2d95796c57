// Selection: classes by typing, patches by a click or a rectangle, heads from the grid; and their ablation.

import { button, el } from '../../frontend/elements.js';
import { send } from '../../frontend/events.js';
import { t } from '../../frontend/i18n.js';
import { chosenHeads, className, listed, targets } from './lines.js';

/** @type {any} */
const pen = document.createElement('canvas').getContext('2d');

/** One of the two class pickers: lists the most likely classes and accepts any other name. */
export function picker(self, label) {
  const field = el('input', {
    type: 'text',
    class: 'vv-class',
    'aria-label': label,
    list: `vv-classes-${self.name}`,
    autocomplete: 'off',
    onfocus: () => field.select(),
    oninput: () => field.classList.add('vv-typing'),
    onblur: typed,
    onchange: () => chooseClasses(self, typed()),
    onkeydown: ({ key }) => key === 'Escape' && self.draw(typed()),
  });
  function typed() {
    field.classList.remove('vv-typing');
    return field;
  }
  return field;
}

/** Updates both pickers and their options; each is as wide as its text. */
export function showPickers(self, of, rather) {
  const { ui } = self;
  const names = [...ui.classes.map((one) => one.name), ...ui.labels];
  if (ui.listed !== names.join()) {
    ui.listed = names.join();
    ui.list.replaceChildren(
      ...[...new Set(names)].map((name) => el('option', { value: t(name), label: name })),
    );
  }
  const chosen = [className(self, of), rather === null ? '' : className(self, rather)];
  ui.rather.placeholder = t('– (all others)');
  ui.unknown.hidden = true;
  for (const [i, field] of [ui.of, ui.rather].entries()) {
    if (field.classList.contains('vv-typing')) continue; // a result may arrive while the visitor is typing
    field.value = chosen[i] && t(chosen[i]);
    field.title = chosen[i];
    pen.font = self.read('font', () => {
      const { fontWeight, fontSize, fontFamily } = getComputedStyle(field);
      return `${fontWeight} ${fontSize} ${fontFamily}`;
    });
    field.style.width = `${Math.ceil(pen.measureText(field.value || field.placeholder).width) + 24}px`;
  }
}

/** A rectangle drawn over the image selects its patches. */
export function drags(self, { heat, at }) {
  let from = -1;
  heat.addEventListener('pointerdown', (event) => (from = at(event)));
  heat.addEventListener('pointerup', (event) => {
    const to = at(event);
    const { cols } = self.grid;
    if (from >= 0 && to >= 0 && to !== from) {
      const rows = [from, to].map((cell) => Math.floor(cell / cols)).sort((a, b) => a - b);
      const across = [from, to].map((cell) => cell % cols).sort((a, b) => a - b);
      const found = [];
      for (let r = rows[0]; r <= rows[1]; r++)
        for (let c = across[0]; c <= across[1]; c++) found.push(r * cols + c);
      toggle(self, found, true);
      self.dragged = true;
    }
    from = -1;
  });
}

/** Selects patches, or adds one to the selection; a selected patch is deselected. */
export function toggle(self, cells, only = false) {
  if (self.dragged) {
    // the click that ends a drag
    self.dragged = false;
    if (!only) return;
  }
  const now = only ? [] : listed(self.settings.patches);
  const [cell] = cells;
  const next = only ? cells : now.includes(cell) ? now.filter((one) => one !== cell) : [...now, cell];
  self.settings.chosen = '';
  self.set('patches', next.sort((a, b) => a - b).join('.'));
}

/** Selects a head, or a whole layer if `head` is null. */
export function chooseHead(self, layer, head) {
  const text = head === null ? String(layer) : `${layer}.${head}`;
  self.settings.patches = self.settings.trail = self.settings.writer = '';
  self.set('chosen', self.settings.chosen === text ? '' : text);
}

export function clear(self) {
  self.settings.patches = '';
  self.set('chosen', '');
}

/** Ablates the selection; every view then shows the ablated model. */
export function takeAway(self) {
  const patches = listed(self.settings.patches);
  const heads = chosenHeads(self).map(({ layer, head }) => `${layer}.${head}`);
  send('ablate', { heads, patches });
  if (patches.length) clear(self); // heads stay selected beside the changed prediction
}

/** The class with this number or name, ignoring case; -1 for none. */
function classOf(text, classes, labels) {
  const asked = text.trim().toLowerCase();
  const names = (label) =>
    [label, t(label), ...label.split(',')].some((one) => one.trim().toLowerCase() === asked);
  const found = classes.find(({ name }) => names(name))?.class ?? labels.findIndex(names);
  const number = /^\d+$/.test(asked) ? Number(asked) : -1;
  return found < 0 && number < (labels.length || Infinity) ? number : found;
}

/** The most similarly spelled names, by the Dice coefficient of letter pairs; at most three. */
export function nearest(text, names) {
  const pairs = (one) => new Set(Array.from(one.slice(1), (letter, i) => (one[i] + letter).toLowerCase()));
  const asked = pairs(text);
  const alike = (one) => {
    const has = pairs(one);
    return (2 * [...asked].filter((pair) => has.has(pair)).length) / (asked.size + has.size || 1);
  };
  return names
    .map((name) => [alike(name), name])
    .filter(([share]) => share > 0.4)
    .sort((a, b) => b[0] - a[0])
    .slice(0, 3)
    .map(([, name]) => name);
}

/** Applies the text of a picker; for an unknown name, offers the closest names. */
function chooseClasses(self, field) {
  const { labels, classes, of, unknown } = self.ui;
  const now = targets(self);
  const text = field.value.trim();
  const index = text ? classOf(text, classes, labels) : null;
  unknown.hidden = index !== -1;
  if (index === -1) {
    const names = classes.map(({ name }) => name);
    const near = nearest(text, [...new Set([...labels, ...names].flatMap((name) => [name, t(name)]))]);
    const offered = near.length ? near : names.slice(0, 3);
    const take = (name) => {
      field.value = name;
      chooseClasses(self, field);
    };
    const told = { name: text, count: labels.length || names.length };
    unknown.replaceChildren(
      near.length
        ? t('No class named {name} among {count}. Closest names:', told)
        : t('No class named {name} among {count}. Most likely here:', told),
      ...offered.map((name) => button(t(name), () => take(name))),
    );
    unknown.style.left = `${field.offsetLeft}px`;
    return;
  }
  const first = field === of ? (index ?? now.of) : now.of;
  const second = field === of ? now.rather : index;
  self.set('target', second === null || second === first ? String(first) : `${first}-${second}`);
}
