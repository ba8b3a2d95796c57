// Ablates every part alone: the drop of the logit beside the part's own contribution. Sufficient edges: how
// much of the prediction is left with only some edges; started by a button.

import { button, el } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { drawShares, drawWall, largest, wall } from './account.js';
import { asked, either, roomBeside } from './lines.js';
import { stepwise } from './steps.js';

/** The panel; `pick(layer, head)` as in account.js. */
export function effects(self, { pick }) {
  const made = stepwise(self, { next, draw, pick: ({ layer, head }) => head && pick(layer, head) });
  const parts = ['heads', 'mlps'].map((part) =>
    button(part === 'heads' ? t('Heads') : t('MLPs'), () => self.set('part', part), { 'data-part': part }),
  );
  const totals = wall(self, pick);
  Object.assign(made, { part: '', parts, totals });
  const kind = { class: 'vv-buttons', role: 'group', 'aria-label': t('Panel') };
  const bar = { class: 'vv-buttons', 'data-export': 'no' };
  const row = el('div', bar, el('span', kind, ...parts), ...made.nodes);
  const panel = { class: 'vv-stack vv-effects', hidden: true };
  made.node = el('div', panel, row, made.drawn.node, made.problem, totals.node);
  return made;
}

/** One layer after another, the last and cheapest first; for the other kind of part, up to the same layer. */
function next(self, made) {
  const { target, relative, part } = self.settings;
  const { layers } = self.value;
  if (made.done === layers && made.part === part) return null;
  const done = made.part === part || !made.done ? made.done + 1 : made.done;
  return { question: { target, relative, part, show: 'effects', layer: layers - done + 1 }, done, part };
}

/** Requests missing results and draws the available ones. */
export function drawEffects(self, made) {
  if (made.about(`${self.key}/${asked(self)}`)) made.part = '';
  if (made.part !== self.settings.part) made.run();
  else draw(self, made);
}

function draw(self, made) {
  const { ui, settings, value } = self;
  // the result belongs to other settings
  if (settings.show !== 'effects' || made.goal !== `${self.key}/${asked(self)}`) return;
  const { zoom } = self;
  const width = Math.max(160, self.across);
  const room = roomBeside(self, 560);
  const some = settings.part === 'heads';
  const walls = some ? Math.min(300, 44 + 60 * value.heads) * zoom : 0;
  made.parts.forEach((one) => one.setAttribute('aria-pressed', String(one.dataset.part === settings.part)));
  const tall = Math.max(200 * zoom, Math.min(360 * zoom, room - walls - 230 * zoom));
  if (made.figure) made.drawn.draw(made.figure, Math.min(width, 520 * zoom), tall);
  const { layers } = value;
  made.progress(layers, t('{done} of {count} layers', { done: made.done, count: layers }));
  made.totals.node.hidden = ui.made.shares.node.hidden = !some;
  if (!some) return;
  const values = new Float32Array(value.layers * value.heads).fill(NaN);
  const dots = made.part === 'heads' ? made.figure.series.at(-1) : { y: [] };
  dots.y.forEach((effect, i) => {
    values[(dots.of.layer[i] - 1) * value.heads + dots.of.head[i] - 1] = effect;
  });
  const direct = self.data.direct.values;
  const most = largest(self, 'walls', direct, values);
  const title = t('Drop when each head is ablated, colour scale {most}', { most: either(most) });
  drawWall(self, made.totals, { values, most, title, room: walls / 2, width });
  drawShares(self, ui.made, { values: direct, room: walls / 2, width, most });
}

/** The panel, hidden until selected. */
export function smallest(self) {
  const made = stepwise(self, { next: further, draw: paint });
  const said = el('p', {
    class: 'vv-text',
    text: t(
      'An edge is the part of one component’s output that a later component reads. The edges with the ' +
        'largest contributions are kept, all others replaced, and the model is rerun.',
    ),
  });
  const bar = el('div', { class: 'vv-buttons', 'data-export': 'no' }, ...made.nodes);
  const kind = { class: 'vv-stack vv-alone', hidden: true };
  made.node = el('div', kind, said, bar, made.drawn.node, made.problem);
  return made;
}

const most = (self) => self.control('tried').maximum;

function further(self, made) {
  const done = made.done + 1;
  const question = { target: self.settings.target, show: 'smallest', tried: done };
  return done > most(self) ? null : { question, done };
}

export function drawSmallest(self, made) {
  if (made.about(`${self.key}/${self.settings.target}`)) made.halt();
  paint(self, made);
}

function paint(self, made) {
  if (self.settings.show !== 'smallest') return;
  const tall = Math.max(170, Math.min(420, roomBeside(self, 620) / self.zoom - 330)) * self.zoom;
  made.drawn.node.hidden = !made.figure;
  if (made.figure) made.drawn.draw(made.figure, Math.max(160, self.across), tall);
  const [done, count] = [made.done, most(self)];
  made.progress(count, done ? t('{done} of {count} steps', { done, count }) : '');
}
