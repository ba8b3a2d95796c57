// The smallest part that answers: how much of the answer is left with some edges alone, begun by a button.

import { chartBeside } from '../../canvas/chart.js';
import { el } from '../../canvas/elements.js';
import { t } from '../../canvas/words.js';
import { stepwise } from './steps.js';

/** The panel, out of view until it is asked for. */
export function smallest(self) {
  const made = { goal: '', done: 0, figure: null };
  const drawn = chartBeside(self);
  const steps = stepwise(self, { next: () => next(self, made), draw: () => draw(self, made) });
  const said = el('p', {
    class: 'vv-text',
    text: t('Edges are kept by the largest share, all others replaced, and the model is run each time.'),
  });
  const bar = el('div', { class: 'vv-buttons', 'data-export': 'no' }, ...steps.nodes);
  const node = el('div', { class: 'vv-stack vv-alone', hidden: true }, said, bar, drawn.node, steps.problem);
  return Object.assign(made, { drawn, steps, node });
}

/** How many steps there are. */
const most = (self) => self.control('tried').maximum;

function next(self, made) {
  const { target } = self.settings;
  const done = made.done + 1;
  if (done > most(self)) return null;
  return {
    question: { target, show: 'smallest', tried: done },
    took: (figure) => Object.assign(made, { figure, done }),
  };
}

/** What there is of this answer. */
export function drawSmallest(self, made) {
  const goal = `${self.key}/${self.settings.target}`;
  if (made.goal !== goal) {
    Object.assign(made, { goal, done: 0, figure: null });
    made.steps.halt();
  }
  draw(self, made);
}

function draw(self, made) {
  if (self.settings.show !== 'smallest') return;
  const tall = Math.max(170, Math.min(420, (self.deep || 620) / self.zoom - 330)) * self.zoom;
  made.drawn.node.hidden = !made.figure;
  if (made.figure) made.drawn.draw(made.figure, Math.max(260, self.below.clientWidth), tall);
  const [done, count] = [made.done, most(self)];
  made.steps.progress(done, count, done ? t('{done} of {count} steps', { done, count }) : '');
  made.node.dataset.done = done === count ? 'all' : String(done);
}
