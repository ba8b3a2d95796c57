// Perturbations of the image in steps: curves that grow point by point, and the model's inputs.

import { aborted, sentenceOf, unpacked } from '../../frontend/data.js';
import { div, el, fit, pen, running, sheet, slider, stack, tops } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { number } from '../../frontend/numbers.js';
import { chart } from '../../frontend/plotly_chart.js';
import { pieces } from '../../frontend/removed_patches.js';
import { asText } from '../../frontend/view_state.js';

const PATCHES = ['drop', 'shuffle']; // images drawn by this script, from whole patches
const KEPT = 40; // experiments whose points are kept; the oldest are dropped
const runs = new Map(); // by image, model and kind; kept while another image or view is shown

function runOf(self) {
  const goal = `${self.key}/${self.settings.kind}`;
  if (!runs.has(goal)) {
    for (const old of [...runs.keys()].slice(0, Math.max(0, runs.size - KEPT + 1))) runs.delete(old);
    runs.set(goal, { goal, kind: self.settings.kind, points: [], guess: [], life: null, problem: '' });
  }
  return runs.get(goal);
}

/** The plan: each point's position, name and description, and the names of samples and replacements. */
const planOf = (self) => unpacked(self.data.plan);

/** The selected point and sample, clipped because another kind of experiment may have fewer. */
const stepOf = ({ settings }, { names }) => Math.min(settings.step, names.length - 1);
const drawOf = ({ settings }, { draws }) => Math.min(settings.draw, draws.length);

/** The visitor's guess, drawn over the axes before the experiment: a fraction at each point of the curve. */
function sketching(self, { plot, at, up }) {
  /** @type {{step: number, share: number} | null} */
  let last = null;
  const open = ({ run } = self.ui) => !run.life && !run.points.some(Boolean) && !valued(self);
  const draw = (event) => {
    const { run } = self.ui;
    if (!(event.buttons & 1) || !open()) return;
    const far = run.places.map((place) => Math.abs(place - at(event)));
    const step = far.indexOf(Math.min(...far));
    const share = Math.max(0, Math.min(1, up(event)));
    const from = last ?? { step, share };
    for (let i = Math.min(from.step, step); i <= Math.max(from.step, step); i++) {
      const part = step === from.step ? 1 : (i - from.step) / (step - from.step);
      run.guess[i] = from.share + part * (share - from.share);
    }
    last = { step, share };
    self.draw();
  };
  plot.addEventListener('pointerdown', (event) => {
    last = null;
    if (open()) plot.setPointerCapture(event.pointerId); // Plotly covers the page during a drag
    draw(event);
  });
  plot.addEventListener('pointermove', draw);
}

/** The guess's error in words; before the experiment, the question. */
function guessed(self, run, { guess, names, ways }) {
  const known = run.points.filter(Boolean).length;
  if (!known) return t(guess);
  if (valued(self)) return '';
  const apart = run.points
    .map((point, step) => ({
      step,
      by: 100 * (run.guess[step] - point?.[0]?.means?.[self.settings.score][0]),
    }))
    .filter(({ by }) => Number.isFinite(by));
  if (!apart.length || known < names.length) return '';
  const mean = apart.reduce((sum, { by }) => sum + Math.abs(by), 0) / apart.length;
  const most = apart.reduce((one, other) => (Math.abs(other.by) > Math.abs(one.by) ? other : one));
  const told = { mean: number(mean, 2), most: number(Math.abs(most.by), 2), place: names[most.step] };
  const verdict =
    most.by > 0
      ? t(
          'Your guess is off by {mean} percentage points on average; worst at {place}, where it was ' +
            '{most} points too high.',
          told,
        )
      : t(
          'Your guess is off by {mean} percentage points on average; worst at {place}, where it was ' +
            '{most} points too low.',
          told,
        );
  const which = ways.length > 1 ? ` ${t('The guess is compared with “{way}”.', { way: t(ways[0]) })}` : '';
  return verdict + which;
}

/** A mean with twice its standard error, both in per cent. */
const spoken = ([mean, error]) => `${number(100 * mean)} ± ${number(200 * error, 2)} %`;

const valued = (self) => self.value.head_type === 'value';

/** Summary of all samples of a point. */
const overDraws = (self, { means, draws }) =>
  valued(self)
    ? t('All samples: {class} {value}.', {
        class: self.summary.answer.name,
        value: `${number(means.logit[0])} ± ${number(2 * means.logit[1], 2)}`,
      })
    : t('All samples: {class} {probability}; prediction kept in {kept} of {count}.', {
        class: self.summary.answer.name,
        probability: spoken(means.probability),
        kept: draws.kept.filter(Boolean).length,
        count: draws.kept.length,
      });

/** A model input and its prediction. */
function card(self) {
  const canvas = el('canvas', { role: 'img' });
  const head = el('p', { class: 'vv-h' });
  const list = div('vv-tops');
  const over = el('p', { class: 'vv-text' });
  const node = div('vv-card', div('vv-plot', canvas), stack(head, list, over));
  const draw = ({ name, done, black, width, step, draw, answer }) => {
    const { input, shown, orders } = self.data;
    const [, draws, patches] = orders?.shape ?? [];
    const dropped = self.settings.kind === 'drop';
    const at = ((dropped ? 0 : step) * draws + draw - 1) * patches;
    const order = orders?.values.subarray(at, at + patches);
    if (shown) {
      const whole = sheet(input.width, input.height);
      const image = new ImageData(new Uint8ClampedArray(shown.values), input.width, input.height);
      pen(whole).putImageData(image, 0, 0);
      const tall = (input.height * width) / input.width;
      fit(canvas, width, tall, self.density).drawImage(whole, 0, 0, width, tall);
    } else if (dropped && order)
      pieces(self, canvas, { picture: input, width, gone: order.subarray(0, done.values.count ?? 0), black });
    else if (order) pieces(self, canvas, { picture: input, width, order });
    canvas.parentElement.hidden = !shown && !order;
    head.textContent = name;
    canvas.setAttribute('aria-label', `${t('Model input')}: ${t(done)}`);
    list.replaceChildren(...tops(answer?.tops?.[draw - 1] ?? [], self.value.head_type));
    over.textContent = answer?.refused ? t(answer.refused) : answer ? overDraws(self, answer) : '';
  };
  return { node, draw };
}

/** A slider whose range depends on the kind of experiment. */
function range(self, name, label, minimum) {
  const { head, input, show } = slider(label, { min: minimum }, (value) => self.set(name, value));
  const node = el('div', { 'data-export': 'no' }, head, input);
  const say = (value, most, text) => {
    show(value, text, most);
    input.setAttribute('aria-valuetext', text);
  };
  return { node, show: say };
}

export default () => ({
  title: 'Perturbations',
  walled: true,
  pictures: () => ['input'],
  items: ({ settings, key }) => [
    ...(PATCHES.includes(settings.kind) ? ['orders'] : key === 'cell' ? [] : ['shown']), // too many to embed
    'plan',
    'chart',
  ],
  caption: (self) =>
    [...self.below.querySelectorAll('.vv-h, .vv-text')].map((one) => one.textContent).join(' · '),
  reset: (self) => this_.end(self),

  build(self) {
    const far = running(t('Experiment progress'), () => this_.toggle(self));
    const drawn = chart(self, { zooms: false });
    const guess = el('p', { class: 'vv-text vv-guess', role: 'status' });
    const text = t('Draw your guess here. The measured curve then appears beside it.');
    const invitation = el('p', { class: 'vv-invitation', 'data-export': 'no', text });
    drawn.plot.parentNode.append(invitation);
    self.figure.append(stack(far.node, guess, drawn.node));
    drawn.plot.style.touchAction = 'pan-y';
    sketching(self, drawn);
    const step = range(self, 'step', t('Point on the curve'), 0);
    const draw = range(self, 'draw', t('Sample'), 1);
    const shown = el('p', { class: 'vv-h', role: 'status' });
    const cards = [card(self), card(self)];
    self.below.append(stack(step.node, draw.node, shown, ...cards.map((one) => one.node)));
    return { far, drawn, guess, invitation, step, draw, shown, cards, run: null };
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

  /** Computes every missing point, one after another; stops when aborted. */
  async begin(self, run) {
    const life = new AbortController();
    [run.life, run.problem] = [life, ''];
    try {
      for (let step = 0; step < planOf(self).names.length; step++) {
        if (run.points[step]) continue;
        const found = await self.array('point', `kind=${run.kind}&step=${step}`, life.signal);
        run.points[step] = unpacked(found);
        if (self.ui.run === run) self.draw();
      }
    } catch (problem) {
      if (!aborted(problem)) run.problem = sentenceOf(problem);
    }
    if (run.life === life) run.life = null;
    if (self.ui.run === run) self.draw();
  },

  paint(self) {
    const { ui, data } = self;
    const { run } = ui;
    if (!data || !self.width || !run?.goal.startsWith(`${self.key}/`)) return;
    const plan = planOf(self);
    const count = plan.names.length;
    const done = run.points.filter(Boolean).length;
    const whole = done === count;
    const text = run.problem
      ? t(run.problem)
      : run.life
        ? t('{done} of {count}', { done, count })
        : done && !whole
          ? t('Stopped. Results so far are kept.')
          : '';
    ui.far.show({ on: run.life, whole, share: done / count, start: t('Start the experiment'), text });
    this_.curves(self, run, plan);
    this_.pictures(self, run, plan);
    self.root.dataset.experiment = whole ? run.goal : '';
  },

  /** Draws the chart of the known points, with a line at the point of the images. */
  curves(self, run, plan) {
    const { score } = self.settings;
    if (run.points.length && `${score}/${run.points.length}` !== run.drawn) return void this_.ask(self, run);
    const figure = unpacked(run.points.length ? run.chart : self.data.chart);
    const at = figure.series[0]?.x[stepOf(self, plan)];
    if (at !== undefined)
      figure.levels.push({ value: at, upright: true, name: '', colour: '#7d838e', dash: 'solid' });
    run.places = plan.places;
    const steps = run.places.map((_, step) => step).filter((step) => run.guess[step] !== undefined);
    // space for the guess's name is kept from the start: the axes drawn on must not move
    if (!valued(self) && (steps.length || !run.points.length))
      figure.series.push({
        x: steps.map((step) => run.places[step]),
        y: steps.map((step) => run.guess[step]),
        name: t('your guess'),
        colour: '#7d838e',
        line: true,
        dash: 'dashed',
        thick: 0.5,
      });
    self.ui.guess.textContent = guessed(self, run, plan);
    // the value axis of a regression is unknown beforehand
    self.ui.invitation.hidden = valued(self) || run.life || steps.length > 0 || run.points.length > 0;
    self.ui.drawn.draw(figure);
  },

  /** Requests the chart of the known points. */
  async ask(self, run) {
    const [score, known] = [self.settings.score, run.points.length];
    const chart = await self.array('chart', asText({ kind: run.kind, score, known }));
    Object.assign(run, { chart, drawn: `${score}/${known}` });
    if (self.ui.run === run && score === self.settings.score) self.draw(); // refits the height
  },

  pictures(self, run, plan) {
    const { names, draws, ways } = plan;
    const { ui } = self;
    const [step, draw] = [stepOf(self, plan), drawOf(self, plan)];
    const [point, done] = [run.points[step], plan.done[step]];
    ui.step.show(step, names.length - 1, names[step]);
    ui.draw.show(draw, draws.length, t(draws[draw - 1]));
    ui.draw.node.hidden = draws.length < 2;
    ui.shown.textContent = t(done);
    const share = parseFloat(getComputedStyle(self.below).getPropertyValue('--vv-card')) || 0.5;
    const width = Math.max(110, Math.min(260 * self.zoom, share * self.across));
    ui.cards.forEach((one, i) => {
      one.node.hidden = i >= ways.length;
      const told = { done, black: i === 1, width, step, draw, answer: point?.[i] };
      if (i < ways.length) one.draw({ name: t(ways[i]), ...told });
    });
  },
};
