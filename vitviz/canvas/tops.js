// The likeliest classes of an answer, each with its share as a number and a bar.

import { div, el, span } from './elements.js';
import { percent } from './numbers.js';
import { t } from './words.js';

/** A share as a bar. */
export const track = (share) =>
  el('span', { class: 'vv-track' }, el('span', { style: `width:${100 * share}%` }));

/** A line for each [name, share]. */
export function tops(likeliest) {
  return likeliest.map(([name, share]) => div('vv-top', span(t(name)), span(percent(share)), track(share)));
}
