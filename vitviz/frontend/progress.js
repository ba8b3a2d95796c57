// Progress of a forward pass that parts of the page wait for; the server is polled once for all of them.

import { answers } from './data.js';
import { el } from './elements.js';
import { t } from './i18n.js';

const PAUSE = 600; // ms between two polls
/** @type {Map<string, Set<(done: number, of: number) => void>>} */
const waiting = new Map();

async function ask(key) {
  while (waiting.has(key)) {
    // retry while the server is unreachable
    const told = await answers(`${key}/progress`).catch(() => null);
    if (told) for (const tell of waiting.get(key) || []) tell(told.done, told.of);
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

/** A bar with the progress of the pass of `key`, until `end()` is called. */
export function awaiting(key) {
  const bar = el('progress', { 'aria-label': t('Progress of the forward pass') });
  const count = el('span', { class: 'vv-far' });
  const tell = (done, of) => {
    if (of) {
      bar.max = of;
      bar.value = done;
    }
    count.textContent = of
      ? t('layer {done} of {of}', { done, of })
      : t('the forward pass is starting or queued');
  };
  const first = !waiting.has(key);
  if (first) waiting.set(key, new Set());
  waiting.get(key)?.add(tell);
  tell(0, 0);
  if (first) ask(key);
  return {
    node: el('span', { class: 'vv-awaiting' }, bar, count),
    end() {
      waiting.get(key)?.delete(tell);
      if (!waiting.get(key)?.size) waiting.delete(key);
    },
  };
}
