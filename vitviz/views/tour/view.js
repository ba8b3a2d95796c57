// The guided tour: one step at a time, with text, formula, figure, shapes, and an exercise.

import { pixels } from '../../frontend/data.js';
import { button, div, el } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { pathStep, probabilitiesStep, readoutStep, sumStep, withoutStep } from './answer.js';
import { embeddingStep, tokenStep } from './embedding.js';
import { attentionStep, layersStep } from './encoder.js';
import { flattenStep, patchesStep } from './input.js';
import { mapOf, overviewOf } from './map.js';
import { formula, prose, told } from './parts.js';
import { pictureStep } from './picture.js';
import { positionsStep } from './shuffle.js';

const stops = {
  picture: pictureStep,
  patches: patchesStep,
  flatten: flattenStep,
  embedding: embeddingStep,
  token: tokenStep,
  positions: positionsStep,
  attention: attentionStep,
  layers: layersStep,
  readout: readoutStep,
  probabilities: probabilitiesStep,
  sum: sumStep,
  without: withoutStep,
  path: pathStep,
};

const COLUMNS = 640; // px of width from which a step's text and figure are side by side
const SMALLEST = 0.6; // of the height: a figure that would have to be smaller scrolls
const lecturing = () => document.documentElement.classList.contains('vv-lecturing');
const stopOf = ({ settings, summary }) => stops[summary.steps[settings.step - 1].name];

export default () => ({
  title: 'From the image to the prediction',
  scrolls: true, // longer than any window
  caption: (self) =>
    t('Step {step} of {count}', { step: self.settings.step, count: self.summary.steps.length }),

  build(self) {
    const back = button(t('Back'), () => this.go(self, -1), { class: 'vv-back' });
    const next = button(t('Next'), () => this.go(self, 1), { class: 'vv-next' });
    const dots = el('ol', { class: 'vv-dots' });
    const count = el('p', { class: 'vv-count' });
    const folded = el('summary', { text: t('The model as in figure 1 of the paper') });
    const fold = el('details', { class: 'vv-map-fold' }, folded);
    const kind = { class: 'vv-tour-nav', 'aria-label': t('Steps of the tour'), 'data-export': 'no' };
    const nav = el('nav', kind, back, count, dots, next, fold);
    const title = el('p', { class: 'vv-tour-title', role: 'heading', 'aria-level': '3' });
    const said = el('p', { class: 'vv-said' });
    const formulas = div('vv-formulas');
    const body = div('vv-tour-body');
    const shapes = el('ul', { class: 'vv-shapes' });
    const attempt = el('p', { class: 'vv-try' });
    const on = button('', () => this.go(self, 1, true), { class: 'vv-on', 'data-export': 'no' });
    const overview = overviewOf(self, () => this.lead(body.lastChild));
    const parts = { nav, title, said, formulas, body, shapes, attempt, on };
    const keys = { onkeydown: (event) => this.walk(self, event) };
    const side = el('div', { class: 'vv-map-side', ...keys });
    const node = el('div', { class: 'vv-tour', ...keys }, ...Object.values(parts));
    self.figure.append(node);
    return { ...parts, node, overview, back, next, dots, count, fold, side, made: {}, shown: '' };
  },

  beside: (self) => [self.ui.side],

  /** Arrow keys change the step where they have no other use. */
  walk(self, event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
    if (/^(INPUT|SELECT|TEXTAREA|CANVAS)$/.test(event.target.tagName)) return;
    event.preventDefault();
    this.go(self, step);
  },

  go(self, step, up) {
    const goal = Math.max(1, Math.min(self.summary.steps.length, self.settings.step + step));
    if (goal === self.settings.step) return;
    self.set('step', goal);
    if (up) this.lead(self.root);
  },

  /** Scrolls to a part of the page. */
  lead(node) {
    const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
    node.scrollIntoView({ block: 'start', behavior: still ? 'auto' : 'smooth' });
  },

  pictures: (self) => ['input', ...(stopOf(self).pictures ?? [])],
  items: (self) => stopOf(self).items?.(self) ?? [],

  draw(self) {
    const { ui, data } = self;
    const { steps, filters, zeroable, diagram } = self.summary;
    const { layers, heads } = self.value;
    const at = self.settings.step;
    const step = steps[at - 1];
    if (ui.picture !== data.input) [ui.picture, ui.bytes] = [data.input, pixels(data.input)];
    data.bytes = ui.bytes;
    const model = JSON.stringify([steps, self.grid, layers, heads, filters, zeroable, diagram]);
    if (ui.model !== model) {
      // another model has other steps
      [ui.model, ui.made, ui.shown] = [model, {}, ''];
      ui.map?.node.remove();
      ui.map = mapOf(self);
      const dot = (step, title) => {
        const kind = { class: 'vv-dot', 'aria-label': t('Step {step}: {title}', { step, title }), title };
        const node = button('', () => self.set('step', step), kind);
        return el('li', {}, node);
      };
      ui.dots.replaceChildren(...steps.map((one, i) => dot(i + 1, t(one.title))));
    }
    if (ui.shown !== step.name) this.turn(self, step, at);
    this.place(self, step);
    if (at === 1) ui.overview.show();
    this.fitted(self, () => stops[step.name].draw(self, ui.made[step.name]));
    ui.node.dataset.step = step.name;
  },

  /**
   * Puts the map beside the step if the page has a free column, else into a fold above the step; with two
   * checkpoints, always into the fold.
   */
  place({ ui, room, value, figure }, step) {
    const beside = Boolean(room && !value.heading);
    const home = beside ? ui.side : ui.fold;
    if (ui.map.node.parentNode !== home) home.append(ui.map.node);
    ui.fold.hidden = ui.dots.hidden = beside;
    const columns = lecturing() ? Boolean(room) : beside && figure.clientWidth >= COLUMNS;
    ui.node.classList.toggle('vv-columns', columns);
    ui.map.show(step.name);
  },

  /**
   * Draws a step at the available width; beside its text, as tall as fits, which is known only after drawing.
   * A step with much content scrolls instead, except on a slide.
   */
  fitted(self, draw) {
    const { body, node } = self.ui;
    const slide = node.classList.contains('vv-columns');
    const tall = slide ? body.clientHeight : self.tall;
    const least = lecturing() ? 0 : tall * SMALLEST;
    const drawn = (height) => {
      self.ui.space = { width: body.clientWidth, tall: height, slide };
      draw();
    };
    drawn(tall);
    if (!slide) return;
    for (let i = 0, height = tall; i < 8 && body.scrollHeight > body.clientHeight; i++) {
      height *= Math.max(0.7, (body.clientHeight / body.scrollHeight) * 0.98);
      if (height < least) return drawn(tall);
      drawn(height);
    }
  },

  /** Goes to another step. */
  turn(self, step, at) {
    const { ui } = self;
    const { steps } = self.summary;
    const before = ui.shown;
    ui.shown = step.name;
    self.figure.scrollTop = 0;
    ui.made[step.name] = ui.made[step.name] || stops[step.name].build(self);
    ui.body.replaceChildren(...(at === 1 ? [ui.overview.node] : []), ui.made[step.name].node);
    ui.body.scrollTop = 0;
    if (at === 1) ui.overview.play();
    ui.title.textContent = t(step.title);
    ui.count.textContent = t('Step {step} of {count}', { step: at, count: steps.length });
    ui.said.replaceChildren(...prose(step.said.map((text) => told(text, step.values)).join(' ')));
    ui.formulas.replaceChildren(...step.formulas.map(formula));
    ui.formulas.hidden = !step.formulas.length;
    ui.shapes.replaceChildren(...step.shapes.map((text) => el('li', { text: told(text, step.values) })));
    ui.shapes.hidden = !step.shapes.length;
    const attempt = prose(told(step.attempt, step.values));
    ui.attempt.replaceChildren(el('strong', { text: t('Try:') }), ' ', ...attempt);
    ui.back.disabled = at === 1;
    ui.next.disabled = at === steps.length;
    ui.on.hidden = at === steps.length;
    if (at < steps.length) ui.on.textContent = `${t('Next: {title}', { title: t(steps[at].title) })} →`;
    [...ui.dots.children].forEach((dot, i) => {
      i === at - 1
        ? dot.firstChild.setAttribute('aria-current', 'step')
        : dot.firstChild.removeAttribute('aria-current');
      dot.classList.toggle('vv-past', i < at - 1);
    });
    if (before)
      self.say(`${t('Step {step} of {count}', { step: at, count: steps.length })}: ${t(step.title)}`);
    else ui.node.tabIndex = -1;
  },
});
