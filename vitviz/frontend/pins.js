// Pinned tokens: up to four that stay visible, each in its own colour.

import { button, el, span } from './elements.js';
import { t } from './i18n.js';
import { outline } from './pointer.js';

// the Okabe-Ito palette, distinguishable with any colour vision
export const pinColours = ['#e69f00', '#56b4e9', '#009e73', '#cc79a7'];

/** The tokens of the view's setting `pins`. */
export const pinsOf = (self) => (self.settings.pins ? self.settings.pins.split('.').map(Number) : []);

export const pinMarks = (plot) => pinColours.map((colour) => outline(plot, 'vv-mark', colour));

/** Pins or unpins a token; a fifth pin drops the first. */
export function togglePin(self, token) {
  const pins = pinsOf(self);
  const next = pins.includes(token)
    ? pins.filter((one) => one !== token)
    : [...pins, token].slice(-pinColours.length);
  self.set('pins', next.join('.'));
}

/** The map of pinned token number `i`, `side` px wide, with its name and a button that unpins it. */
export function pinned(self, i, { token, name, canvas, side }) {
  const { rows, cols, patch } = self.grid;
  const tall = (side * rows * patch[0]) / (cols * patch[1]);
  canvas.style.cssText = `width:${side}px;height:${tall}px;image-rendering:pixelated`;
  const unpin = button('×', () => togglePin(self, token), {
    class: 'vv-more',
    'data-export': 'no',
    'aria-label': t('Unpin'),
  });
  const style = `border-color:${pinColours[i]};width:${side + 6}px`;
  return el('figure', { style }, canvas, el('figcaption', {}, span(name), unpin));
}
