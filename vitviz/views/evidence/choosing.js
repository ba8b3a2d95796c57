// What is chosen: classes by typing, patches by a click or a rectangle, heads from the wall; and taken away.

import { el } from '../../canvas/elements.js';
import { t } from '../../canvas/words.js';
import { chosenOf, className, listed, targets } from './lines.js';

/** One of the two pickers: the likeliest classes, and with `searched` all others by typing. */
export function picker(self, label, change) {
  const field = el('input', {
    type: 'text',
    class: 'vv-class',
    'aria-label': label,
    list: `vv-classes-${self.name}`,
    autocomplete: 'off',
  });
  field.addEventListener('focus', () => field.select());
  field.addEventListener('change', () => change(field));
  return field;
}

/** Both pickers with what they may name. */
export function showPickers(self, of, rather) {
  const { ui } = self;
  const names = [...ui.classes.map((one) => one.name), ...ui.labels];
  if (ui.listed !== names.join()) {
    ui.listed = names.join();
    ui.list.replaceChildren(...[...new Set(names)].map((name) => el('option', { value: name })));
  }
  ui.of.value = className(self, of);
  ui.rather.value = rather === null ? '' : className(self, rather);
  ui.rather.placeholder = t('– (all others)');
}

/** A rectangle drawn over the picture chooses its patches. */
export function drags(self, { heat, at }) {
  let from = -1;
  heat.addEventListener('pointerdown', (event) => {
    from = at(event);
  });
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

/** Chooses patches, or one more of them; a chosen one is let go. */
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

/** Chooses a head, or all of a layer where head is null. */
export function chooseHead(self, layer, head) {
  const text = head === null ? String(layer) : `${layer}.${head}`;
  self.settings.patches = '';
  self.set('chosen', self.settings.chosen === text ? '' : text);
}

/** Chooses nothing. */
export function clear(self) {
  self.settings.patches = '';
  self.set('chosen', '');
}

/** Takes away what is chosen: every view then shows the model without it. */
export function takeAway(self) {
  const [layer, head] = chosenOf(self);
  const patches = listed(self.settings.patches);
  const heads = layer
    ? head
      ? [`${layer}.${head}`]
      : Array.from({ length: self.value.heads }, (_, h) => `${layer}.${h + 1}`)
    : [];
  document.dispatchEvent(new CustomEvent('vitviz:without', { detail: { heads, patches } }));
  clear(self);
}

/** Takes over what was typed into one of the pickers. */
export function chooseClasses(self, of, rather) {
  const { labels, classes } = self.ui;
  const now = targets(self);
  const find = (field, kept) => {
    if (!field) return kept;
    const text = field.value.trim();
    const known = classes.find((one) => one.name === text);
    const index = known ? known.class : labels.indexOf(text);
    return index >= 0 ? index : /^\d+$/.test(text) ? Number(text) : null;
  };
  const first = find(of, now.of) ?? now.of;
  const second = find(rather, now.rather);
  self.set('target', second === null || second === first ? String(first) : `${first}-${second}`);
}
