// The browser's Back and Forward: an entry for every choice of photograph, checkpoint, view and edit, none
// for the ticks of a slider or the steps of a film. Each entry keeps what was seen, all views' settings with
// it, so that a reload comes back to it too.

import { kept, open, put } from '../../frontend/view_state.js';

const ANSWERED = ['checkpoint', 'second', 'size', 'sample', 'picture', 'without', 'strokes']; // by the server
const PATIENCE = 15000; // ms; an answer that never comes does not hold the address for ever

const same = (one, other, names) => names.every((name) => (one[name] || '') === (other[name] || ''));
const choice = (moment) => ({ ...moment, checkpoint: moment.checkpoint.split('@')[0] });

/** Whether two moments differ in nothing that somebody chose. */
const alike = (one, other) => same(choice(one), choice(other), [...ANSWERED, 'tab']);

/**
 * @param {() => any} now what is seen: what ANSWERED names, the tab, and all views' settings
 * @param {() => any} value what the server has told of it
 * @param {(name: string, data: any) => void} trigger
 */
export function past(now, value, trigger) {
  let waiting = null; // the moment that Back or Forward led to last, until it is in view
  let sent = null; // the one that the server was asked for
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

  /** One question at a time: Gradio's `always_last` would ask once more what was asked first. */
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
    /** Keeps what is seen, as an entry of its own if it was chosen; `url` is its address, if it has one. */
    keep(url, chosen) {
      if (waiting) return;
      const moment = now();
      if (JSON.stringify(kept()) === JSON.stringify(moment) && String(url) === window.location.href) return;
      const state = { ...window.history.state, vitviz: moment };
      if (chosen && kept() && !alike(kept(), moment)) window.history.pushState(state, '', url);
      else window.history.replaceState(state, '', url);
    },
    /** Whether the entry in view has what the server was last asked for, but for a step of a film. */
    holds: () => Boolean(waiting || (kept() && same(choice(kept()), choice(now()), ANSWERED))),
    /** Takes over what the server has answered to `seen`; what it refused is no moment any more. */
    answered() {
      const { ticket: asked, refused } = value();
      if (!sent || asked !== ticket) return;
      const moment = sent;
      sent = null;
      clearTimeout(patience);
      if (moment !== waiting) return ask(); // Back or Forward led on meanwhile
      if (!refused) return restore(moment);
      waiting = null;
      window.history.replaceState({ ...window.history.state, vitviz: now() }, '');
    },
  };
}
