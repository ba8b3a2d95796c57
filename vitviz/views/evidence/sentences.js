// Every patch in the colour of its likeliest class, such as a sentence, and the legend that names them.

import { unpacked } from '../../frontend/data.js';
import { el, span, stack } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { number } from '../../frontend/numbers.js';
import { className, shown } from './lines.js';

export const likeliest = (self) => shown(self) === 'sentences';

/**
 * The place in the legend of every patch, row by row: of its class, of all that have no colour of their own,
 * and last of those whose cosine is below `least`.
 */
export const placesOf = (pairs, named, least) =>
  Array.from({ length: pairs.length / 2 }, (_, cell) => {
    const own = named.findIndex(([index]) => index === pairs[2 * cell]);
    return !(pairs[2 * cell + 1] >= least) ? named.length : own < 0 ? named.length - 1 : own;
  });

/** The legend of `entries`, and what is `lit`: under the pointer an entry's patches stand alone. */
export function legend() {
  const list = el('ul', { class: 'vv-likeliest' });
  const title = el('p', { class: 'vv-h', text: t('Most likely class of each patch') });
  return { node: stack(title, list), list, lit: -1, places: [], entries: [] };
}

/** Marks the entry of a patch; none where there is none. */
export const markEntry = ({ list, places }, cell) =>
  [...list.children].forEach((one, i) => one.classList.toggle('vv-lit', i === places[cell]));

/** Every class with its share of the patches. */
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
      const said = [index === null ? t(name) : name, `${number(100 * share)} %`]; // as it was written
      const mark = el('i', { style: `background:${colour}` });
      return el('li', { tabindex: 0, ...heard }, mark, ...said.map(span));
    }),
  );
  made.list.children[kept]?.focus();
}

/** The map; of the entry that is lit alone where one is. */
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
    colours: 'balance', // over the photograph in grey
    label: '',
    title: t('Most likely class of each patch, by {method}', { method }),
    said: (cell) => `${className(self, values[2 * cell])}: ${number(values[2 * cell + 1])}`,
  };
}
