// Linked highlighting: marks, lines, rows and cells of one method or head, anywhere on the page.

let now = '';

/** The key of what is lit; '' where nothing is. */
export const lit = () => now;

/** What a head is lit by, from 1; nothing for what is none. */
export const headKey = ({ layer = 0, head = 0 }) => (layer && head ? `head.${layer}.${head}` : '');

/** Lights what is lit within a part of the page that has been drawn anew. */
export function relit(part) {
  for (const node of part.querySelectorAll('[data-lit]'))
    node.classList.toggle('vv-lit', node.dataset.lit === now);
}

/** Lights all that has a key; '' nothing. What is drawn and no element of its own hears "vitviz:lit". */
export function light(key = '') {
  if (!key && !now) return;
  now = key;
  relit(document);
  document.dispatchEvent(new CustomEvent('vitviz:lit', { detail: key }));
}

/** What an element has that lights a key under the pointer, and is lit with it. */
export const lighting = (key) => ({
  'data-lit': key,
  onpointerenter: () => light(key),
  onpointerleave: () => light(''),
});

/** Tells `run` of a view what is lit. */
export const whenLit = (self, run) =>
  document.addEventListener('vitviz:lit', (/** @type {any} */ { detail }) => run(detail), {
    signal: self.life.signal,
  });
