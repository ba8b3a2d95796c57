// Patches dropped or shuffled at random: curves that grow point by point, and what the model was shown.

import { chart } from '../../canvas/chart.js';
import { el } from '../../canvas/elements.js';
import { number } from '../../canvas/numbers.js';
import { pieces } from '../../canvas/pieces.js';
import { running } from '../../canvas/running.js';
import { tops } from '../../canvas/tops.js';
import { t } from '../../canvas/words.js';

const unpack = (item) => JSON.parse(new TextDecoder().decode(item.values));
const waysOf = (kind) =>
  kind === 'drop' ? [t('left out of the sequence'), t('painted black')] : [t('shuffled')];
const KEPT = 40; // experiments whose points are remembered, the oldest forgotten
const runs = new Map(); // by picture, model and kind: they outlive a look at another picture or view

function runOf(self) {
  const goal = `${self.key}/${self.settings.kind}`;
  if (!runs.has(goal)) {
    for (const old of [...runs.keys()].slice(0, Math.max(0, runs.size - KEPT + 1))) runs.delete(old);
    runs.set(goal, { goal, kind: self.settings.kind, points: [], life: null, problem: '' });
  }
  return runs.get(goal);
}

/** The point that is looked at: another kind of experiment may have fewer. */
const stepOf = (self) => Math.min(self.settings.step, self.data.steps.values.length - 1);

/** The points by name: the share that is dropped, or the number of pieces. */
const namesOf = ({ settings, summary, data }) =>
  settings.kind === 'drop'
    ? summary.shares.map((share) => `${share} %`)
    : Array.from(data.steps.values, String);

/** What was done at a point of the curves. */
function doneAt(self, step) {
  const count = self.data.steps.values[step];
  const patches = self.grid.rows * self.grid.cols;
  if (step === 0) return t('the whole picture');
  if (self.settings.kind === 'drop')
    return t('{share} % of the patches dropped: {count} of {patches}', {
      share: self.summary.shares[step],
      count,
      patches,
    });
  const side = Math.round(Math.sqrt(patches / count));
  return t('{count} pieces of {side} × {side} patches shuffled', { count, side });
}

/** A mean with twice its error, both per cent. */
const spoken = ([mean, error]) => `${number(100 * mean)} ± ${number(200 * error, 2)} %`;

/** What a point's draws say together. */
const overDraws = (self, { means, draws }) =>
  t('All draws: {class} {probability}, the answer in {kept} of {count}.', {
    class: self.summary.answer.name,
    probability: spoken(means.probability),
    kept: draws.kept.filter(Boolean).length,
    count: draws.kept.length,
  });

/** A picture as the model got it, and what it answered. */
function card(self) {
  const canvas = el('canvas', { role: 'img' });
  const head = el('p', { class: 'vv-h' });
  const list = el('div', { class: 'vv-tops' });
  const over = el('p', { class: 'vv-text' });
  const node = el(
    'div',
    { class: 'vv-card' },
    el('div', { class: 'vv-plot' }, canvas),
    el('div', { class: 'vv-stack vv-tight' }, head, list, over),
  );
  const draw = ({ name, black, width, step, draw, answer }) => {
    const { input, orders, steps } = self.data;
    const [, draws, patches] = orders.shape;
    const dropped = self.settings.kind === 'drop';
    const at = ((dropped ? 0 : step) * draws + draw - 1) * patches;
    const order = orders.values.subarray(at, at + patches);
    const what = dropped ? { gone: order.subarray(0, steps.values[step]), black } : { order };
    pieces(self, canvas, { picture: input, width, ...what });
    head.textContent = name;
    canvas.setAttribute('aria-label', `${t('What the model was shown')}: ${doneAt(self, step)}`);
    list.replaceChildren(...tops(answer?.tops?.[draw - 1] ?? []));
    over.textContent = answer?.refused ? t(answer.refused) : answer ? overDraws(self, answer) : '';
  };
  return { node, draw };
}

/** A slider of the figure's own, since how far it goes is another for each kind. */
function range(self, name, label, minimum) {
  const output = el('output', { class: 'vv-output' });
  const input = el('input', {
    type: 'range',
    min: minimum,
    step: 1,
    'aria-label': label,
    oninput: () => self.set(name, Number(input.value)),
  });
  const head = el('div', { class: 'vv-label' }, el('span', { text: label }), output);
  const show = (value, most, text) => {
    [input.max, input.value, output.textContent] = [String(most), String(value), text];
    input.style.setProperty('--vv-fill', `${(100 * (value - minimum)) / (most - minimum || 1)}%`);
    input.setAttribute('aria-valuetext', text);
  };
  return { node: el('div', { 'data-export': 'no' }, head, input), show };
}

export default () => ({
  title: 'Experiment',
  walled: true,
  pictures: () => ['input'],
  items: () => ['orders', 'steps'],
  caption: (self) =>
    [...self.below.querySelectorAll('.vv-h, .vv-text')].map((one) => one.textContent).join(' · '),
  reset: (self) => this_.end(self),

  build(self) {
    const far = running(t('How far the experiment is'), () => this_.toggle(self));
    const drawn = chart(self);
    self.figure.append(el('div', { class: 'vv-stack' }, far.node, drawn.node));
    const step = range(self, 'step', t('Point on the curve'), 0);
    const draw = range(self, 'draw', t('Draw'), 1);
    const shown = el('p', { class: 'vv-h', role: 'status' });
    const cards = [card(self), card(self)];
    self.below.append(
      el('div', { class: 'vv-stack' }, step.node, draw.node, shown, ...cards.map((one) => one.node)),
    );
    return { far, drawn, step, draw, shown, cards, run: null };
  },

  draw(self) {
    if (self.ui.run !== runOf(self)) this_.end(self);
    self.ui.run = runOf(self);
    this_.paint(self);
  },
});

const this_ = {
  end(self) {
    self.ui.run?.life?.abort();
    if (self.ui.run) self.ui.run.life = null;
  },

  toggle(self) {
    if (self.ui.run.life) this_.end(self);
    else this_.begin(self, self.ui.run);
    self.draw();
  },

  /** Asks about every point that is not known yet, one after the other; ends where nobody waits. */
  async begin(self, run) {
    const life = new AbortController();
    [run.life, run.problem] = [life, ''];
    try {
      for (let step = 0; step < self.data.steps.values.length; step++) {
        if (run.points[step]) continue;
        const found = await self.array('point', `kind=${run.kind}&step=${step}`, life.signal);
        run.points[step] = unpack(found);
        if (self.ui.run === run) self.draw();
      }
    } catch (problem) {
      if (problem.name !== 'AbortError') run.problem = problem.sentence ?? problem.message;
    }
    if (run.life === life) run.life = null;
    if (self.ui.run === run) self.draw();
  },

  paint(self) {
    const { ui, data } = self;
    const { run } = ui;
    if (!data || !self.width || !run?.goal.startsWith(`${self.key}/`)) return;
    const count = data.steps.values.length;
    const done = run.points.filter(Boolean).length;
    const whole = done === count;
    const text = run.problem
      ? t(run.problem)
      : run.life
        ? t('{done} of {count}', { done, count })
        : done && !whole
          ? t('Stopped; what is known stays.')
          : '';
    ui.far.show({ on: run.life, whole, share: done / count, start: t('Start the experiment'), text });
    this_.curves(self, run);
    this_.pictures(self, run);
    self.root.dataset.experiment = whole ? run.goal : '';
  },

  curves(self, run) {
    const { kind, score } = self.settings;
    const steps = Array.from(self.data.steps.values);
    const { name } = self.summary.answer;
    const of =
      score === 'kept' ? t('draws that keep the answer') : t('probability of {class}', { class: name });
    const series = waysOf(kind).map((way, i) => {
      const known = steps.map((_, step) => [step, run.points[step]?.[i]?.means]).filter(([, one]) => one);
      const band = known.map(
        ([
          ,
          {
            [score]: [mean, error],
          },
        ]) => [mean - 2 * error, mean + 2 * error].map((one) => 100 * Math.max(0, Math.min(1, one))),
      );
      const points = known.map(([step, means]) => ({
        x: step + 1,
        y: 100 * means[score][0],
        told: () => [spoken(means[score]), `${of}, ${way}`, doneAt(self, step)],
        pick: () => self.set('step', step),
      }));
      return { name: way, line: true, dots: true, shade: i, points, band };
    });
    self.ui.drawn.draw({
      title: `${t('The answer to the whole picture')}: ${name}`,
      across: kind === 'drop' ? t('patches dropped') : t('pieces that change places'),
      up: of,
      last: steps.length,
      names: namesOf(self),
      most: 100,
      unit: ' %',
      at: stepOf(self) + 1,
      series,
    });
  },

  pictures(self, run) {
    const { ui, summary } = self;
    const { kind, draw } = self.settings;
    const step = stepOf(self);
    const point = run.points[step];
    const names = namesOf(self);
    ui.step.show(step, names.length - 1, names[step]);
    ui.draw.show(draw, summary.draws, String(draw));
    ui.shown.textContent = doneAt(self, step);
    const ways = waysOf(kind);
    const width = Math.max(110, Math.min(260 * self.zoom, 0.5 * self.below.clientWidth));
    ui.cards.forEach((one, i) => {
      one.node.hidden = i >= ways.length;
      if (i < ways.length) one.draw({ name: ways[i], black: i === 1, width, step, draw, answer: point?.[i] });
    });
  },
};
