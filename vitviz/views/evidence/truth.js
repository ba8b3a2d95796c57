// Held against the truth: an edge into a head by its share and by a real pass without it, begun by a button.

import { button, el, selection } from '../../canvas/elements.js';
import { t } from '../../canvas/words.js';
import { asked } from './lines.js';
import { stepwise } from './steps.js';

const held = (self) => self.settings.beside === 'truth';
const open = (self) => self.settings.show === 'writers' && held(self);

/** The panel; `pick(writer)` is told of a writer. */
export function truth(self, pick) {
  const made = stepwise(self, { item: 'truth', next, draw, pick: ({ writer }) => writer && pick(writer) });
  const choice = (name, label) =>
    selection(
      { 'aria-label': label, onchange: ({ target }) => self.set(name, target.value) },
      self.control(name).options.map(([value, text]) => [value, t(text)]),
    );
  made.choices = { into: choice('into', t('Read as')), parts_as: choice('parts_as', t('In its place')) };
  made.open = button(t('Held against the truth'), () => self.set('beside', held(self) ? 'heads' : 'truth'));
  made.inner = [...Object.values(made.choices), el('span', { class: 'vv-buttons' }, ...made.nodes)];
  const bar = el('div', { class: 'vv-buttons', 'data-export': 'no' }, made.open, ...made.inner);
  made.inner.push(made.drawn.node, made.problem);
  made.node = el('div', { class: 'vv-stack vv-alone' }, bar, made.drawn.node, made.problem);
  return made;
}

function next(self, made) {
  if (made.figure?.done === made.figure?.count && made.done) return null;
  const { target, relative, chosen, trail, into, parts_as } = self.settings;
  const done = made.done + 1;
  return { question: { target, relative, chosen, trail, into, parts_as, tried: done }, done };
}

/** What there is of this head, so wide and tall, if it was asked for; whether it was. */
export function drawTruth(self, made, width, tall) {
  made.open.setAttribute('aria-pressed', String(held(self)));
  for (const node of made.inner) node.hidden = !held(self);
  const { chosen, trail, into, parts_as } = self.settings;
  const goal = [self.key, asked(self), chosen, trail, into, parts_as].join('/');
  made.room = [width, tall];
  if (made.about(goal) || !held(self)) made.halt();
  for (const [name, field] of Object.entries(made.choices)) field.value = self.settings[name];
  draw(self, made);
  return held(self);
}

function draw(self, made) {
  if (!open(self)) return;
  const { figure } = made;
  made.drawn.node.hidden = !figure;
  if (figure) made.drawn.draw(withChosen(figure, self.settings.writer), ...made.room);
  const { done = 0, count = 1 } = figure ?? {};
  made.progress(count, done ? t('{done} of {count} edges', { done, count }) : '', done);
}

/** The chart with the writer in view in another colour. */
function withChosen(figure, writer) {
  const dots = figure.series.at(-1);
  const at = dots.of.writer.indexOf(writer);
  if (at < 0) return figure;
  const one = { ...dots, name: '', colour: '#c46a16' };
  for (const name of ['x', 'y', 'said']) one[name] = [dots[name][at]];
  for (const name of ['of', 'also'])
    one[name] = Object.fromEntries(Object.entries(dots[name]).map(([key, all]) => [key, [all[at]]]));
  return { ...figure, series: [...figure.series, one] };
}
