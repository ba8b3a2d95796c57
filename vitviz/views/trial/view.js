// Maps on trial: one method after the other is asked about, and what is known of it is drawn as it comes; of
// a set of pictures, where methods stand over it.

import { el } from '../../canvas/elements.js';
import { ofYours } from '../../canvas/names.js';
import { running } from '../../canvas/running.js';
import { t } from '../../canvas/words.js';
import { agreement } from './agreement.js';
import { curves } from './curves.js';
import { maps } from './maps.js';
import { ranking } from './ranking.js';
import { standing } from './standing.js';

const unpack = (item) => JSON.parse(new TextDecoder().decode(item.values));
const query = (settings) => new URLSearchParams(settings).toString();

/** What all numbers in view depend on: another goal is another trial. */
const goalOf = ({ key, settings }) => `${key}/${settings.target}/${settings.patches_as}`;

/** The methods in the order of the ranking once it is known, before that in which they are asked. */
function known(self) {
  const { tried, verdict } = self.ui.run;
  const ranked = verdict ? verdict.rows.map((row) => row.method) : [...tried.keys()];
  return ranked.filter((name) => tried.get(name) && !tried.get(name).refused);
}

export default () => ({
  title: 'Trial',
  walled: true,
  pictures: (self) => (self.summary.pictures ? [] : ['upload']),
  items: (self) => (self.summary.pictures ? ['standing'] : ['classes']),
  idle: (settings, { summary }) =>
    summary.pictures ? ['show', 'scale'] : settings.show === 'maps' ? [] : ['scale'],
  caption: (self) => self.ui.verdict.textContent,
  reset: (self) => this_.end(self),

  build(self) {
    const asked = el('select', {
      class: 'vv-asked-class',
      'aria-label': t('Why'),
      onchange: () => self.set('target', asked.value),
    });
    const far = running(t('How far the trial is'), () => this_.toggle(self));
    const verdict = el('p', { class: 'vv-verdict', role: 'status' });
    const refused = el('p', { class: 'vv-text vv-refused' });
    const title = (name) => t(Object.fromEntries(self.summary.methods)[name] ?? name);
    const pick = (name) => self.set('method', self.settings.method === name ? '' : name);
    const made = { title, pick, known: () => known(self), of: (name) => self.ui.run.tried.get(name) };
    const drawn = curves(self, made);
    const parts = { ranking: ranking(self, made), maps: maps(self, made), agreement: agreement(self, made) };
    const over = standing(self, made);
    const top = el('p', { class: 'vv-asked' }, el('span', { text: t('Why') }), asked, far.go, far.bar);
    self.figure.append(el('div', { class: 'vv-stack' }, top, far.said, drawn.node, over.node));
    const nodes = Object.values(parts).map((part) => part.node);
    self.below.append(el('div', { class: 'vv-stack' }, verdict, ...nodes, over.table, refused));
    const ofOne = [top, drawn.node, refused];
    const ofMany = [over.node, over.table];
    const fields = { asked, far, verdict, refused, ofOne, ofMany };
    return { ...fields, drawn, parts, over, title, run: this_.fresh('') };
  },

  draw(self) {
    const { ui } = self;
    const many = Boolean(self.summary.pictures);
    ui.ofOne.forEach((node) => (node.hidden = many));
    ui.ofMany.forEach((node) => (node.hidden = !many));
    if (many) return this_.over(self);
    ui.classes = unpack(self.data.classes);
    this_.pickers(self);
    if (ui.run.goal !== goalOf(self)) {
      this_.end(self);
      ui.run = this_.fresh(goalOf(self));
      if (self.summary.starts) this_.begin(self);
    }
    if (ui.run.verdict && ui.run.score !== self.settings.score) this_.judge(self, ui.run);
    this_.paint(self);
  },
});

const this_ = {
  fresh: (goal) => ({
    goal,
    tried: new Map(),
    verdict: null,
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

  /** Asks about every method that is not known yet, then for the verdict; ends where nobody waits. */
  async begin(self) {
    const { run } = self.ui;
    const { target, patches_as } = self.settings;
    const life = new AbortController();
    run.life = life;
    run.problem = '';
    try {
      for (const [method] of self.summary.methods) {
        if (run.tried.has(method)) continue;
        run.now = method;
        this_.paint(self);
        const found = await self.array('tried', query({ target, patches_as, method }), life.signal);
        run.tried.set(method, unpack(found));
      }
      await this_.judge(self, run, life.signal);
      run.alike = unpack(await self.array('sensitivity', query({ target }), life.signal));
    } catch (problem) {
      if (problem.name !== 'AbortError')
        [run.problem, run.life] = [problem.sentence ?? problem.message, null];
    }
    if (run.life === life) run.life = null;
    run.now = '';
    if (self.ui.run === run) this_.paint(self);
  },

  /** Where methods stand over a set of pictures, removed as they were when it was asked about. */
  over(self) {
    const { ui } = self;
    const told = unpack(self.data.standing);
    if (told.patches_as !== self.settings.patches_as) return self.set('patches_as', told.patches_as);
    ui.run = this_.fresh('');
    ui.far.said.textContent = ofYours(told.pictures);
    ui.far.said.hidden = false;
    ui.verdict.textContent = t(told.verdict);
    for (const part of Object.values(ui.parts)) part.node.hidden = true;
    ui.over.draw(told);
    self.root.dataset.tried = '';
    self.root.dataset.over = `${self.key}/${told.pictures}`;
  },

  /** The ranking by the score that is watched: no pass, only areas. */
  async judge(self, run, signal) {
    const { target, patches_as, score } = self.settings;
    run.score = score;
    const found = unpack(await self.array('verdict', query({ target, patches_as, score }), signal));
    if (self.ui.run !== run || self.settings.score !== score) return;
    run.verdict = found;
    this_.paint(self);
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
      return rather ? `${name(of)} − ${name(rather)}` : name(of);
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
    const count = self.summary.methods.length;
    const done = run.tried.size;
    if (!self.data || !self.width || run.goal !== goalOf(self)) return;
    delete self.root.dataset.over;
    const whole = run.verdict !== null;
    const text = run.problem
      ? t(run.problem)
      : run.life && run.now
        ? t('{done} of {count}: {method}', { done, count, method: ui.title(run.now) })
        : whole || run.life
          ? ''
          : done
            ? t('Stopped; what is known stays.')
            : t('Every method is tried one after the other; you can stop at any time.');
    ui.far.show({ on: run.life, whole, share: done / count, start: t('Start the trial'), text });
    ui.verdict.textContent = whole ? t(run.verdict.verdict) : '';
    ui.drawn.draw(known(self), run);
    for (const [name, part] of Object.entries(ui.parts)) {
      part.node.hidden = self.settings.show !== name || !done;
      if (!part.node.hidden) part.draw(known(self), run);
    }
    const refused = [...run.tried].filter(([, one]) => one.refused);
    ui.refused.textContent = refused.map(([name, one]) => `${ui.title(name)}: ${t(one.refused)}`).join(' ');
    self.root.dataset.tried = whole ? run.goal : '';
  },
};
