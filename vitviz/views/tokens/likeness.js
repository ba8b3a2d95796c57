// Similarity of tokens: cosines of one token with all others, pins, and the prefix tokens as buttons.

import { tinted } from '../../frontend/colours.js';
import { button, el, span } from '../../frontend/elements.js';
import { patchName, t, tokenName } from '../../frontend/i18n.js';
import { fixed } from '../../frontend/numbers.js';
import { pinColours, pinned, pinsOf } from '../../frontend/pins.js';
import { labelled } from '../../frontend/shared_scale.js';
import { facing } from './second.js';
import { cosines, roomOf, scale, shortOf, sizeOf, skipOf, tokensOf, where } from './tokens.js';

/** Draws the map of similarity to one token, and the small maps at every depth. */
export function drawSimilarity(self) {
  const { ui, grid } = self;
  const { rows, cols } = grid;
  const size = sizeOf(self);
  const { low, high, colours } = scale(self);
  const { width, height } = roomOf(self);
  showChips(self, t('Compare with this token'), (token) => {
    self.held = true;
    self.set('token', token);
  });
  const used = ui.second.draw({ width, height });
  paint(self);
  showPins(self);
  const text = t('{token} at every depth', { token: shortOf(self, self.settings.token) });
  ui.depths.draw({
    text,
    width,
    height: height - 46 - used,
    paint: (depth, canvas) =>
      tinted(self.data.by_depth.values, rows, cols, colours, low, high, depth * size, canvas),
  });
}

/** Changes the query, on hover. */
export function ask(self, token) {
  // never show values that have not been fetched
  if (token === self.query || !self.data || !cosines(self, token)) return;
  self.query = token;
  paint(self);
}

export function paint(self) {
  const { ui, query } = self;
  const skip = skipOf(self);
  ui.second.show();
  const of = self.data.photo ? self.facing : null;
  const found = cosines(self, query);
  const cell = self.settings.token - skip;
  const what = self.settings.mean === 'out' ? t('Cosine without the mean patch') : t('Cosine');
  const label = labelled(self, what);
  ui.facts.hidden = true;
  if (of !== null && facing(self, of)) {
    const name = patchName(of);
    const title = `${t('Similarity to {patch} of the second image', { patch: name })} · ${where(self)}`;
    ui.drawn.show({ values: facing(self, of), ...scale(self), label, title, held: -1 });
    return;
  }
  const title = `${t('Similarity to {token}', { token: shortOf(self, query) })} · ${where(self)}`;
  const held = self.held || query === self.settings.token ? cell : -1;
  ui.drawn.show({ values: found.subarray(skip), ...scale(self), label, title, held });
  for (let i = 0; i < skip; i++) {
    ui.chips.children[i].lastChild.textContent = fixed(found[i], 2);
    ui.chips.children[i].setAttribute('aria-pressed', String(i === query));
  }
}

/** Shows the prefix tokens as buttons: `title` is their tooltip, `pick` gets a click. */
export function showChips(self, title, pick = (_token) => {}) {
  const { chips } = self.ui;
  const names = self.grid.prefix;
  const chip = (name, i) => {
    const weight = el('span', { class: 'vv-weight' });
    return button('', () => pick(i), { title: title || null }, span(tokenName(name)), weight);
  };
  chips.replaceChildren(...names.map(chip));
  chips.hidden = !names.length;
}

function showPins(self) {
  const { ui, data } = self;
  const { rows, cols } = self.grid;
  const list = pinsOf(self).slice(0, pinColours.length);
  const skip = skipOf(self);
  const count = tokensOf(self);
  const { low, high, colours } = scale(self);
  const side = Math.max(72, Math.min(120, (self.width - 48) / 4));
  ui.pins.replaceChildren(
    ...list.map((token, i) => {
      const values = data.cosines
        ? cosines(self, token)
        : data.pinned.values.subarray(i * count, (i + 1) * count);
      const canvas = tinted(values, rows, cols, colours, low, high, skip);
      return pinned(self, i, { token, name: shortOf(self, token), canvas, side });
    }),
  );
  ui.pinned.forEach((mark, i) =>
    list[i] >= skip && self.settings.show === 'similarity' ? ui.drawn.put(mark, list[i] - skip) : mark.hide(),
  );
}
