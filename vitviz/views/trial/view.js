// Faithfulness: methods are tested one after another, and results are drawn as they arrive; for an image set,
// the ranking over the set.

import { stroked } from '../../frontend/chart.js';
import { aborted, sentenceOf, unpacked } from '../../frontend/data.js';
import { div, el, running, say, span, stack } from '../../frontend/elements.js';
import { ofASet, t } from '../../frontend/i18n.js';
import { matrix } from '../../frontend/matrix.js';
import { chartBeside } from '../../frontend/plotly_chart.js';
import { asText as query } from '../../frontend/view_state.js';
import { maps } from './maps.js';
import { ranking, standing } from './ranking.js';

/** The matrix of the methods' agreement, with a column for the other class once computed. */
function agreement(self) {
  const drawn = matrix(self);
  const wait = el('p', { class: 'vv-text', text: t('Maps are compared when all methods are tested.') });

  function draw(_names, { verdict, whole, alike }) {
    const figure = alike ?? (whole && verdict.agreement);
    drawn.node.hidden = !figure;
    wait.hidden = Boolean(figure);
    const width = Math.max(160, self.across) - 4;
    if (figure) drawn.draw(figure, { width, height: Infinity, most: 30 * self.zoom });
  }

  return { node: stack(drawn.node, wait), draw };
}

/** Key of everything that the numbers depend on: another key starts another test. */
const goalOf = ({ key, settings }) => `${key}/${settings.target}/${settings.patches_as}/${settings.steps}`;

const BEST = 3; // methods whose curves have a colour; the others are grey until they are pointed at

/** The tested methods: by rank once the ranking is known, before that in order of testing. */
function known(self) {
  const { tried, verdict, whole } = self.ui.run;
  const ranked = whole ? verdict.rows.map((row) => row.method) : [...tried.keys()];
  return ranked.filter((name) => tried.get(name) && !tried.get(name).refused);
}

export default () => ({
  title: 'Faithfulness',
  walled: true,
  pictures: (self) => (self.summary.pictures ? [] : ['upload']),
  items: (self) => (self.summary.pictures ? ['standing', 'chart'] : ['classes']),
  idle: (self) => (self.summary.pictures ? ['show', 'scale', 'steps'] : []),
  caption: (self) => self.ui.verdict.textContent,
  reset: (self) => this_.end(self),

  build(self) {
    const asked = el('select', {
      class: 'vv-asked-class',
      'aria-label': t('Why'),
      onchange: () => self.set('target', asked.value),
    });
    const far = running(t('Test progress'), () => this_.toggle(self));
    const verdict = el('p', { class: 'vv-verdict', role: 'status' });
    const refused = el('p', { class: 'vv-text vv-refused' });
    const title = (name) => t(Object.fromEntries(self.summary.methods)[name] ?? name);
    const pick = (name) => self.set('method', self.settings.method === name ? '' : name);
    const line = (name) => self.ui.run.panels?.[0].series.find(({ key }) => key === name);
    const faint = (one) => ({ ...stroked({ ...one, colour: '#7d838e' }), 'stroke-opacity': 0.5 });
    const style = (name) => (line(name)?.muted === false ? stroked(line(name)) : faint(line(name)));
    const made = { title, pick, style, of: (name) => self.ui.run.tried.get(name) };
    const drawn = [chartBeside(self, { pick }), chartBeside(self, { pick })]; // each with half the space
    const curves = div('vv-curves', ...drawn.map(({ node }) => node));
    const parts = { ranking: ranking(self, made), maps: maps(self, made), agreement: agreement(self) };
    const over = standing(self, made);
    const top = el('p', { class: 'vv-asked' }, span(t('Why')), asked, far.go, far.bar);
    const empty = el('p', { class: 'vv-text', text: t('Curves appear here as methods are tested.') });
    self.figure.append(stack(empty, curves, over.node));
    const nodes = Object.values(parts).map((part) => part.node);
    // the progress is in the place of the verdict, so that nothing moves at the end
    const words = [top, far.said, verdict, ...nodes, over.table, refused];
    self.below.append(stack(...words));
    const ofOne = [top, empty, curves, refused];
    const ofMany = [over.node, over.table];
    const fields = { asked, far, verdict, refused, empty, ofOne, ofMany };
    return { ...fields, drawn, curves, parts, over, title, run: this_.fresh('') };
  },

  draw(self) {
    const { ui } = self;
    const many = Boolean(self.summary.pictures);
    ui.ofOne.forEach((node) => (node.hidden = many));
    ui.ofMany.forEach((node) => (node.hidden = !many));
    if (many) return this_.over(self);
    ui.classes = unpacked(self.data.classes);
    this_.pickers(self);
    if (ui.run.goal !== goalOf(self)) {
      this_.end(self);
      ui.run = this_.fresh(goalOf(self), self.summary.methods.length);
      if (self.summary.starts) this_.begin(self);
    }
    if (ui.run.panels && ui.run.score !== self.settings.score) this_.judge(self, ui.run);
    this_.paint(self);
  },
});

const this_ = {
  fresh: (goal, count = 0) => ({
    goal,
    count, // of methods; kept here because a view that no longer applies has no summary
    tried: new Map(),
    panels: null,
    verdict: null, // of the methods tested so far
    whole: false, // true if the verdict is of all methods
    score: '',
    alike: null,
    now: '',
    life: null,
    problem: '',
  }),

  end(self) {
    self.ui.run?.life?.abort();
    if (self.ui.run) self.ui.run.life = null;
  },

  toggle(self) {
    if (self.ui.run.life) this_.end(self);
    else this_.begin(self);
    this_.paint(self);
  },

  /** Tests every method without a result, then requests the verdict; stops when aborted. */
  async begin(self) {
    const { run } = self.ui;
    const { target, patches_as, steps } = self.settings;
    const life = new AbortController();
    run.life = life;
    run.problem = '';
    try {
      for (const [method] of self.summary.methods) {
        if (run.tried.has(method)) continue;
        run.now = method;
        this_.paint(self);
        const found = await self.array('tried', query({ target, patches_as, steps, method }), life.signal);
        run.tried.set(method, unpacked(found));
        await this_.judge(self, run, life.signal);
      }
      if (!run.whole) await this_.judge(self, run, life.signal);
      const { score } = self.settings;
      const last = query({ target, patches_as, steps, score });
      run.alike = unpacked(await self.array('agreement', last, life.signal));
    } catch (problem) {
      if (!aborted(problem)) [run.problem, run.life] = [sentenceOf(problem), null];
    }
    if (run.life === life) run.life = null;
    run.now = '';
    if (self.ui.run === run) this_.paint(self);
  },

  /** Draws the ranking over an image set, with the patch removal of the survey. */
  over(self) {
    const { ui } = self;
    const told = unpacked(self.data.standing);
    if (told.patches_as !== self.settings.patches_as) return self.set('patches_as', told.patches_as);
    ui.run = this_.fresh('');
    say(ui.far.said, ofASet(told.pictures));
    ui.verdict.textContent = t(told.verdict);
    for (const part of Object.values(ui.parts)) part.node.hidden = true;
    ui.over.draw(told);
    self.root.dataset.tried = '';
    self.root.dataset.over = `${self.key}/${told.pictures}`;
  },

  /** Requests curves and ranking of the methods so far for the chosen score; needs no passes. */
  async judge(self, run, signal) {
    const { target, patches_as, steps, score } = self.settings;
    const whole = run.tried.size === run.count;
    const method = [...run.tried.keys()].at(-1);
    const asked = { target, patches_as, steps, score };
    const ask = (item, more = {}) => self.array(item, query({ ...asked, ...more }), signal);
    run.score = score;
    const verdict = (whole || run.tried.size > 2) && ask('verdict', { method }); // after both baselines
    const questions = [ask('panels', { method }), verdict, run.alike && ask('agreement')];
    const found = await Promise.all(questions);
    if (self.ui.run !== run || self.settings.score !== score) return;
    if (!run.panels) self.fitted = ''; // their space is measured again
    [run.panels, run.verdict, run.alike] = found.map((one) => (one ? unpacked(one) : null));
    run.whole = whole && run.verdict !== null;
    self.draw();
  },

  /** Draws both panels, side by side or stacked; the best methods in colour, the selected one thick. */
  curves(self) {
    const { drawn, curves, run } = self.ui;
    const room = self.room || Infinity;
    const stacked = self.width < 520 ? room >= 380 * self.zoom : self.width < 900 && room >= 560;
    const tall = Math.min(self.tall, innerWidth < 768 ? 260 : 820); // a phone's page has two screens
    curves.classList.toggle('vv-stacked', stacked);
    const best = run.verdict?.rows.slice(0, BEST).map(({ method }) => method) ?? [];
    run.panels?.forEach((panel, i) => {
      for (const line of panel.series) {
        line.thick = line.key === self.settings.method ? 0.7 : 0.35;
        line.muted = ![...best, self.settings.method].includes(line.key);
      }
      const width = stacked ? self.width : (self.width - 12) / 2;
      const question = t(panel.y_label); // a metric's own scale; a label may be left out
      const named = {
        question,
        y_label: i && !stacked ? '' : panel.y_label,
        x_label: stacked && !i ? '' : panel.x_label,
      };
      drawn[i].draw({ ...panel, ...named }, width, Math.max(stacked ? 130 : 200, stacked ? tall / 2 : tall));
    });
  },

  pickers(self) {
    const { asked, classes } = self.ui;
    const { settings } = self;
    const named = new Map(classes.likeliest.map((one) => [String(one.class), one.name]));
    const name = (index) =>
      named.get(index) ?? classes.labels[Number(index)] ?? t('class {number}', { number: index });
    const now = settings.target === 'top' ? String(self.summary.top[0]) : settings.target;
    const values = [...new Set([...named.keys(), now])];
    const label = (value) => {
      const [of, rather] = value.split('-');
      return rather ? `${t(name(of))} − ${t(name(rather))}` : t(name(of));
    };
    if (asked.dataset.of !== values.join()) {
      asked.dataset.of = values.join();
      asked.replaceChildren(...values.map((value) => el('option', { value, text: label(value) })));
    }
    asked.value = now;
    self.ui.nameOf = name;
  },

  paint(self) {
    const { ui } = self;
    const { run } = ui;
    const { count } = run;
    const done = run.tried.size;
    if (!self.data || !self.width || run.goal !== goalOf(self)) return;
    delete self.root.dataset.over;
    const { whole } = run;
    const text = run.problem
      ? t(run.problem)
      : run.life && run.now && !run.verdict // the verdict replaces the progress text
        ? t('{done} of {count}: {method}', { done, count, method: ui.title(run.now) })
        : whole || run.life
          ? ''
          : done
            ? t('Stopped. Results so far are kept.')
            : t('Methods are tested one after another. You can stop at any time.');
    ui.far.show({ on: run.life, whole, share: done / count, start: t('Start the test'), text });
    const sentence = run.verdict ? t(run.verdict.verdict) : '';
    ui.verdict.textContent =
      whole || !sentence
        ? sentence
        : t('After {done} of {count} maps, controls included: {verdict}', { done, count, verdict: sentence });
    ui.empty.hidden = Boolean(run.panels || run.problem);
    ui.curves.classList.toggle('vv-unseen', !run.panels); // may be of another class or checkpoint
    this_.curves(self);
    for (const [name, part] of Object.entries(ui.parts)) {
      part.node.hidden = self.settings.show !== name || !done;
      if (!part.node.hidden) part.draw(known(self), run);
    }
    const notes = [...run.tried].map(([name, one]) => [name, one.refused || one.convergence]);
    const told = notes.filter(([, note]) => note);
    ui.refused.textContent = told.map(([name, note]) => `${ui.title(name)}: ${t(note)}`).join(' ');
    self.root.dataset.tried = whole ? run.goal : '';
  },
};
