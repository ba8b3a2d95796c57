// Every patch in the colour of its most likely class, such as a sentence, with a legend.

import { unpacked } from '../../frontend/data.js';
import { el, span, stack } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { number } from '../../frontend/numbers.js';
import { className, shown } from './lines.js';

export const likeliest = (self) => shown(self) === 'sentences';

/**
 * Each patch's index in the legend, row by row: the patch's class, the entry of classes without a colour, or
 * last "none" if the cosine is below `least`.
 */
export const placesOf = (pairs, named, least) =>
  Array.from({ length: pairs.length / 2 }, (_, cell) => {
    const own = named.findIndex(([index]) => index === pairs[2 * cell]);
    return !(pairs[2 * cell + 1] >= least) ? named.length : own < 0 ? named.length - 1 : own;
  });

/** The legend of `entries`; `lit` is the hovered entry, which shows only that entry's patches. */
export function legend() {
  const list = el('ul', { class: 'vv-likeliest' });
  const title = el('p', { class: 'vv-h', text: t('Most likely class of each patch') });
  return { node: stack(title, list), list, lit: -1, places: [], entries: [] };
}

/** Marks a patch's legend entry; none for -1. */
export const markEntry = ({ list, places }, cell) =>
  [...list.children].forEach((one, i) => one.classList.toggle('vv-lit', i === places[cell]));

/** Draws every class with its fraction of the patches. */
export function drawLegend(self, made) {
  const { least } = self.settings;
  const named = unpacked(self.data.legend);
  const none = [null, t('None: cosine below {least}', { least: number(Number(least)) }), 'transparent'];
  made.entries = [...named, none];
  made.places = placesOf(self.data.likeliest.values, named, least);
  const light = (place) => {
    made.lit = place;
    self.ui.drawn.show(likeliestMap(self, made));
  };
  const kept = [...made.list.children].indexOf(document.activeElement);
  made.list.replaceChildren(
    ...made.entries.map(([index, name, colour], place) => {
      const share = made.places.filter((one) => one === place).length / made.places.length;
      const [on, off] = [() => light(place), () => light(-1)];
      const heard = { onpointerenter: on, onfocus: on, onpointerleave: off, onblur: off };
      const said = [index === null ? t(name) : name, `${number(100 * share)} %`]; // own class names stay
      const mark = el('i', { style: `background:${colour}` });
      return el('li', { tabindex: 0, ...heard }, mark, ...said.map(span));
    }),
  );
  made.list.children[kept]?.focus();
}

/** The map; only of the hovered entry, if any. */
export function likeliestMap(self, { places, entries, lit }) {
  const { values } = self.data.likeliest;
  const bare = (place) => place === entries.length - 1 || (lit >= 0 && place !== lit);
  const channels = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const { options } = self.control('patchwise');
  const method = t(options.find(([name]) => name === self.settings.patchwise)[1]);
  return {
    values: places.map((place, cell) => (bare(place) ? NaN : values[2 * cell + 1])),
    pixels: places.flatMap((place) => channels(entries[place][2])),
    low: 0,
    high: 1,
    colours: 'balance', // makes the image below grey
    label: '',
    title: t('Most likely class of each patch, by {method}', { method }),
    said: (cell) => `${className(self, values[2 * cell])}: ${number(values[2 * cell + 1])}`,
  };
}
