// The smallest part that answers: how much of the answer is left with some edges alone, begun by a button.

import { el } from '../../canvas/elements.js';
import { t } from '../../canvas/words.js';
import { stepwise } from './steps.js';

/** The panel, out of view until it is asked for. */
export function smallest(self) {
  const made = stepwise(self, { next, draw });
  const said = el('p', {
    class: 'vv-text',
    text: t('Edges are kept by the largest share, all others replaced, and the model is run each time.'),
  });
  const bar = el('div', { class: 'vv-buttons', 'data-export': 'no' }, ...made.nodes);
  const kind = { class: 'vv-stack vv-alone', hidden: true };
  made.node = el('div', kind, said, bar, made.drawn.node, made.problem);
  return made;
}

/** How many steps there are. */
const most = (self) => self.control('tried').maximum;

function next(self, made) {
  const done = made.done + 1;
  const question = { target: self.settings.target, show: 'smallest', tried: done };
  return done > most(self) ? null : { question, done };
}

/** What there is of this answer. */
export function drawSmallest(self, made) {
  if (made.about(`${self.key}/${self.settings.target}`)) made.halt();
  draw(self, made);
}

function draw(self, made) {
  if (self.settings.show !== 'smallest') return;
  const tall = Math.max(170, Math.min(420, (self.deep || 620) / self.zoom - 330)) * self.zoom;
  made.drawn.node.hidden = !made.figure;
  if (made.figure) made.drawn.draw(made.figure, Math.max(260, self.below.clientWidth), tall);
  const [done, count] = [made.done, most(self)];
  made.progress(count, done ? t('{done} of {count} steps', { done, count }) : '');
}
