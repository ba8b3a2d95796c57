// Linked highlighting: marks, lines, rows and cells of one method or head, anywhere on the page.

import { listen, send } from './events.js';

let now = '';

/** The highlighted key; '' for none. */
export const lit = () => now;

/** The highlight key of a head, counted from 1; '' if layer or head is missing. */
export const headKey = ({ layer = 0, head = 0 }) => (layer && head ? `head.${layer}.${head}` : '');

/** Restores the highlight in a part of the page that has been rebuilt. */
export function relit(part) {
  for (const node of part.querySelectorAll('[data-lit]'))
    node.classList.toggle('vv-lit', node.dataset.lit === now);
}

/** Highlights everything with a key; '' for nothing. Drawings without elements use `whenLit`. */
export function light(key = '') {
  if (!key && !now) return;
  now = key;
  relit(document);
  send('highlight', key);
}

/** Attributes of an element that highlights a key on hover, and is highlighted with the key. */
export const lighting = (key) => ({
  'data-lit': key,
  onpointerenter: () => light(key),
  onpointerleave: () => light(''),
});

/** Calls `run` of a view with the highlighted key. */
export const whenLit = (self, run) => listen('highlight', run, self.life.signal);
