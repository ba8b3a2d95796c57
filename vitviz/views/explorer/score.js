// Why a head looks there: one score before the softmax by who wrote its query and who wrote its key.

import { unpacked } from '../../canvas/data.js';
import { button, el, stack } from '../../canvas/elements.js';
import { headKey } from '../../canvas/lit.js';
import { matrix } from '../../canvas/matrix.js';
import { outline } from '../../canvas/pointer.js';
import { t } from '../../canvas/words.js';
import { deeper, put } from './tokens.js';

const FRAMES = ['var(--vv-orange)', 'var(--vv-blue)']; // of the key, and of that with which it is compared

/** The panel; `slot` is the setting that a click in the picture changes. */
export function score(self, plot) {
  const made = { slot: 'key', told: null, frames: FRAMES.map((colour) => outline(plot, '', colour)) };
  const head = (i) => headKey(made.told.heads[i]);
  made.matrix = matrix(self, {
    key: (row, col) => head(col) || head(row),
  });
  made.open = button(t('Why there?'), () => self.set('beside', deeper(self) ? 'wall' : 'score'), {
    'data-export': 'no',
    title: t('Why it looks there'),
  });
  made.slots = el('div', { class: 'vv-buttons', 'data-export': 'no' });
  [made.above, made.notes] = [el('p', { class: 'vv-text' }), el('p', { class: 'vv-text' })];
  made.node = stack(made.slots, made.above, made.matrix.node, made.notes);
  return made;
}

export function drawScore(self, made) {
  made.node.hidden = !deeper(self);
  made.open.setAttribute('aria-pressed', String(deeper(self)));
  made.frames.forEach((frame) => frame.hide());
  if (!deeper(self)) return;
  made.told = unpacked(self.data.score);
  const { slots = [], places, above = '', matrix: figure, notes } = made.told;
  const choose = (slot) => {
    made.slot = slot;
    self.draw();
    made.slots.querySelector('[aria-pressed=true]').focus();
  };
  const choice = ([slot, text]) =>
    button(t(text), () => choose(slot), { 'aria-pressed': String(slot === made.slot) });
  made.slots.replaceChildren(
    el('span', { style: 'width:100%', text: t('A click in the picture chooses:') }),
    ...slots.map(choice),
  );
  made.above.textContent = t(above);
  made.notes.textContent = notes.map((one) => t(one)).join(' ');
  made.slots.hidden = made.matrix.node.hidden = !figure;
  if (!figure) return;
  made.frames.forEach((frame, i) => {
    const place = slots.findIndex(([slot]) => slot === ['key', 'against'][i]);
    put(self, frame, places[place]);
  });
  const width = Math.max(280, self.below.clientWidth - 4);
  const used = made.node.offsetHeight - made.matrix.node.offsetHeight + 100 * self.zoom;
  const height = Math.max(150 * self.zoom, self.deep ? self.deep - used : width);
  made.matrix.draw(figure, { width, height });
}
