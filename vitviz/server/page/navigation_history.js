// Back and Forward of the browser: one history entry per choice of image, checkpoint, view and edit; none for
// slider ticks and snapshots of a training. Each entry stores the state with all views' settings, so that a
// reload restores it too.

import { kept, open, put } from '../../frontend/view_state.js';

const ANSWERED = ['checkpoint', 'second', 'size', 'sample', 'picture', 'without', 'strokes']; // on the server
const PATIENCE = 15000; // ms; a lost response must not block the address

const same = (one, other, names) => names.every((name) => (one[name] || '') === (other[name] || ''));
const choice = (moment) => ({ ...moment, checkpoint: moment.checkpoint.split('@')[0] });

/** True if two states differ in nothing that the visitor chose. */
const alike = (one, other) => same(choice(one), choice(other), [...ANSWERED, 'tab']);

/**
 * @param {() => any} now the current state: the fields of ANSWERED, the tab, and all views' settings
 * @param {() => any} value the server's value of the links component
 * @param {(name: string, data: any) => void} trigger
 */
export function past(now, value, trigger) {
  /** @type {any} */
  let waiting = null; // the state that Back or Forward led to, until it is visible
  /** @type {any} */
  let sent = null; // the state requested from the server
  let ticket = 0;
  let patience = 0;

  function restore(moment) {
    waiting = null;
    if (moment.settings) put(moment.settings, value());
    if (moment.tab && moment.tab !== now().tab) open(moment.tab);
  }

  function go(moment) {
    if (!moment || !value()?.key) return;
    if (!waiting && same(moment, now(), ANSWERED)) return restore(moment);
    waiting = moment;
    if (!sent) ask();
  }

  /** Sends one request at a time: Gradio's `always_last` would send the first request's data again. */
  function ask() {
    sent = waiting;
    ticket += 1;
    clearTimeout(patience);
    patience = setTimeout(() => ([sent, waiting] = [null, null]), PATIENCE);
    trigger('seen', { ...Object.fromEntries(ANSWERED.map((name) => [name, sent[name] || ''])), ticket });
  }

  window.addEventListener('popstate', () => go(kept()));
  return {
    go,
    /** Stores the state, as a new entry if the visitor chose it; `url` is the entry's address. */
    keep(url, chosen) {
      if (waiting) return;
      const moment = now();
      if (JSON.stringify(kept()) === JSON.stringify(moment) && String(url) === window.location.href) return;
      const state = { ...window.history.state, vitviz: moment };
      if (chosen && kept() && !alike(kept(), moment)) window.history.pushState(state, '', url);
      else window.history.replaceState(state, '', url);
    },
    /** True if the current entry holds the last request's state, apart from the training snapshot. */
    holds: () => Boolean(waiting || (kept() && same(choice(kept()), choice(now()), ANSWERED))),
    /** Applies the response to `seen`; a refused state is dropped. */
    answered() {
      const { ticket: asked, refused } = value();
      if (!sent || asked !== ticket) return;
      const moment = sent;
      sent = null;
      clearTimeout(patience);
      if (moment !== waiting) return ask(); // Back or Forward was used meanwhile
      if (!refused) return restore(moment);
      waiting = null;
      window.history.replaceState({ ...window.history.state, vitviz: now() }, '');
    },
  };
}
