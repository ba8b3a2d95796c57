// Links from a view to a lesson: two checkpoints on the current image, in another view.

import { button, el } from './elements.js';
import { send } from './events.js';
import { t } from './i18n.js';
import { open } from './view_state.js';

/** @type {{text: string, pair: string}[]} */
let pairs = [];
let choose = (_pair) => {};
const drawn = new Set();

/** Sets the available pairs and the function that opens one. */
export function offering(now, chosen) {
  [pairs, choose] = [now, chosen];
  for (const draw of drawn) draw();
}

/** A line with a button per pair, which opens the view `slug` with some settings. */
export function leads(self, said, slug, settings) {
  const node = el('p', { class: 'vv-text vv-leads vv-rest', 'data-export': 'no', 'data-slide': 'no' });
  const draw = () => {
    node.hidden = !pairs.length || Boolean(self.value.second);
    const buttons = pairs.map(({ text, pair }) =>
      button(t(text), () => {
        send('leave-for-lesson');
        choose(pair);
        open(slug, settings);
      }),
    );
    node.replaceChildren(`${said} `, ...buttons);
  };
  drawn.add(draw);
  self.life.signal.addEventListener('abort', () => drawn.delete(draw));
  draw();
  return node;
}
