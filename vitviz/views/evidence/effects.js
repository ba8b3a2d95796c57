// Each part taken away alone: what the answer loses, beside what the part itself had written.

import { chartBeside } from '../../canvas/chart.js';
import { Refusal, unpacked } from '../../canvas/data.js';
import { button, el } from '../../canvas/elements.js';
import { asText } from '../../canvas/memory.js';
import { t } from '../../canvas/words.js';
import { drawShares, largest } from './account.js';
import { asked, either } from './lines.js';
import { drawWall, wall } from './wall.js';

/** The panel; `pick(layer, head)` as for the account. */
export function effects(self, { pick }) {
  const made = { goal: '', part: '', figure: null, flight: null, done: 0 };
  const parts = ['heads', 'mlps'].map((part) =>
    button(part === 'heads' ? t('Heads') : t('MLPs'), () => self.set('part', part), { 'data-part': part }),
  );
  const bar = el('progress', { max: 1, value: 0 });
  const told = el('span', { role: 'status' });
  const go = button('', () => (made.flight ? halt(self, made) : run(self, made)));
  const totals = wall(self, pick);
  const drawn = chartBeside(self, { pick: ({ layer, head }) => head && pick(layer, head) });
  const problem = el('p', { class: 'vv-text' });
  Object.assign(made, { parts, bar, told, go, totals, drawn, problem });
  made.node = el(
    'div',
    { class: 'vv-stack vv-effects', hidden: true },
    el(
      'div',
      { class: 'vv-buttons', 'data-export': 'no' },
      el('span', { class: 'vv-buttons', role: 'group', 'aria-label': t('Beside the map') }, ...parts),
      bar,
      told,
      go,
    ),
    drawn.node,
    problem,
    totals.node,
  );
  return made;
}

/** Stops what is being asked for; what is there stays. */
export function halt(self, made) {
  made.flight?.abort();
  made.flight = null;
  if (!made.node.hidden) progress(self, made);
}

/** Asks layer after layer, the last and cheapest first, on from where it was stopped. */
async function run(self, made) {
  const flight = new AbortController();
  const { target, relative, part } = self.settings;
  const { layers } = self.value;
  [made.flight, made.problem.textContent] = [flight, ''];
  try {
    while (made.done < layers || made.part !== part) {
      const done = made.part === part || !made.done ? made.done + 1 : made.done; // as far, of the other part
      const question = asText({ target, relative, part, show: 'effects', layer: layers - done + 1 });
      const found = await self.array('chart', question, flight.signal);
      if (made.flight !== flight) return;
      Object.assign(made, { figure: unpacked(found), done, part });
      draw(self, made);
    }
  } catch (problem) {
    if (made.flight !== flight) return; // stopped, or about something else by now
    made.problem.textContent = problem instanceof Refusal ? t(problem.sentence) : problem.message;
  }
  if (made.flight !== flight) return;
  made.flight = null;
  draw(self, made);
}

function progress({ value: { layers } }, made) {
  const whole = made.done === layers;
  made.bar.value = made.done / layers;
  made.bar.hidden = made.go.hidden = whole;
  made.go.textContent = made.flight ? t('Stop') : t('Go on');
  made.told.textContent = whole ? '' : t('{done} of {count} layers', { done: made.done, count: layers });
  made.node.dataset.done = whole ? 'all' : String(made.done);
}

/** In view: asks for what is not there yet, and draws what is. */
export function drawEffects(self, made) {
  const goal = `${self.key}/${asked(self)}`;
  const other = made.goal !== goal;
  if (other) Object.assign(made, { goal, done: 0, part: '', figure: null });
  if (other || made.part !== self.settings.part) {
    made.flight?.abort();
    run(self, made);
  }
  draw(self, made);
}

function draw(self, made) {
  const { ui, settings, value } = self;
  // an answer to another question
  if (settings.show !== 'effects' || made.goal !== `${self.key}/${asked(self)}`) return;
  const { zoom } = self;
  const width = Math.max(260, self.below.clientWidth);
  const room = self.below.clientHeight || 560;
  const some = settings.part === 'heads';
  const walls = some ? Math.min(300, 44 + 60 * value.heads) * zoom : 0;
  made.parts.forEach((one) => one.setAttribute('aria-pressed', String(one.dataset.part === settings.part)));
  const tall = Math.max(200 * zoom, Math.min(360 * zoom, room - walls - 230 * zoom));
  if (made.figure) made.drawn.draw(made.figure, Math.min(width, 520 * zoom), tall);
  progress(self, made);
  made.totals.node.hidden = ui.made.shares.node.hidden = !some;
  if (!some) return;
  const values = new Float32Array(value.layers * value.heads).fill(NaN);
  const dots = made.part === 'heads' ? made.figure.series.at(-1) : { y: [] };
  dots.y.forEach((effect, i) => {
    values[(dots.of.layer[i] - 1) * value.heads + dots.of.head[i] - 1] = effect;
  });
  const direct = self.data.direct.values;
  const most = largest(self, 'walls', direct, values);
  const title = t('What the answer loses without each head, up to {most}', { most: either(most) });
  drawWall(self, made.totals, { values, most, title, room: walls / 2, width });
  drawShares(self, ui.made, { values: direct, room: walls / 2, width, most });
}
