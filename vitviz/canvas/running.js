// What is asked for step by step: a button that starts it, stops it and goes on, and how far it is.

import { el } from './elements.js';
import { t } from './words.js';

/**
 * The button, the bar and what is said of them, and `node` with all three. `show` puts into them whether it
 * runs, whether it is whole, the share that is done, how it is started, and what is said.
 */
export function running(label, toggle) {
  const quiet = { 'data-export': 'no', hidden: true };
  const go = el('button', { type: 'button', class: 'vv-go', onclick: toggle, ...quiet });
  const bar = el('progress', { max: 1, value: 0, 'aria-label': label, ...quiet });
  const said = el('span', { class: 'vv-text vv-trying', role: 'status', ...quiet });
  const show = ({ on, whole, share, start, text }) => {
    go.hidden = whole && !on;
    go.textContent = on ? t('Stop') : share ? t('Go on') : start;
    bar.hidden = !on && (whole || !share);
    bar.value = share;
    said.textContent = text;
    said.hidden = !text;
  };
  return { go, bar, said, node: el('p', { class: 'vv-asked' }, go, bar, said), show };
}
