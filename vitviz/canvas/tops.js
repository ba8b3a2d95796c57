// The likeliest classes of an answer, each with its share as a number and a bar.

import { div, el } from './elements.js';

/** A line for each [name, share]. */
export function tops(likeliest) {
  return likeliest.map(([name, share]) =>
    div(
      'vv-top',
      el('span', { text: name }),
      el('span', { text: `${(100 * share).toFixed(1)} %` }),
      el('span', { class: 'vv-track' }, el('span', { style: `width:${100 * share}%` })),
    ),
  );
}
