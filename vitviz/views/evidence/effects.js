// Each part taken away alone: what the answer loses, beside what the part itself had written.

import { Refusal } from '../../canvas/data.js';
import { el } from '../../canvas/elements.js';
import { asText } from '../../canvas/memory.js';
import { fixed } from '../../canvas/numbers.js';
import { still } from '../../canvas/still.js';
import { t } from '../../canvas/words.js';
import { drawShares, largest } from './account.js';
import { asked, signed } from './lines.js';
import { scatter } from './scatter.js';
import { drawWall, shown, wall } from './wall.js';

const MARKED = 3; // dots whose distance from the diagonal is drawn

/** The panel; `pick(layer, head)` as for the account. */
export function effects(self, { pick }) {
  const made = { found: [], goal: '', flight: null, done: 0, agreement: null, problem: '' };
  const parts = ['heads', 'mlps'].map((part) =>
    el('button', {
      type: 'button',
      'data-part': part,
      text: part === 'heads' ? t('Heads') : t('MLPs'),
      onclick: () => self.set('part', part),
    }),
  );
  const bar = el('progress', { max: 1, value: 0 });
  const told = el('span', { role: 'status' });
  const button = el('button', {
    type: 'button',
    onclick: () => (made.flight ? halt(made) : run(self, made)),
  });
  const totals = wall(self, {
    pick,
    value: (index) => effectOf(self, made, index),
    label: () => t('What the answer loses without each head.'),
  });
  Object.assign(made, {
    pick,
    parts,
    bar,
    told,
    button,
    totals,
    title: el('p', { class: 'vv-h' }),
    dots: scatter(self),
    figures: el('p', { class: 'vv-sum' }),
    why: el('p', { class: 'vv-text' }),
  });
  made.node = el(
    'div',
    { class: 'vv-stack vv-effects', hidden: true },
    made.title,
    el(
      'div',
      { class: 'vv-buttons', 'data-export': 'no' },
      el('span', { class: 'vv-buttons', role: 'group', 'aria-label': t('Beside the map') }, ...parts),
      bar,
      told,
      button,
    ),
    el('div', { class: 'vv-plot' }, made.dots.node),
    made.figures,
    made.why,
    totals.title,
    totals.plot,
  );
  return made;
}

/** One head's effect by its place, layer · heads + head; NaN as long as it was not tried. */
const effectOf = (self, made, index) =>
  made.found[Math.floor(index / self.value.heads)]?.[index % self.value.heads] ?? NaN;

/** Stops what is being asked for; what is there stays. */
export function halt(made) {
  made.flight?.abort();
  made.flight = null;
  if (!made.node.hidden) progress(made);
}

/** Asks layer after layer, the last and cheapest first, on from where it was stopped. */
async function run(self, made) {
  const flight = new AbortController();
  const { target, relative } = self.settings;
  const question = (more) => asText({ target, relative, ...more });
  [made.flight, made.problem] = [flight, ''];
  try {
    for (let layer = self.value.layers; layer >= 1; layer--) {
      if (made.found[layer - 1]) continue;
      const { values } = await self.array('effects', question({ layer }), flight.signal);
      if (made.flight !== flight) return;
      made.found[layer - 1] = values;
      made.done += 1;
      draw(self, made);
    }
    made.agreement = (await self.array('agreement', question({}), flight.signal)).values;
  } catch (problem) {
    if (made.flight !== flight) return; // stopped, or about something else by now
    made.problem = problem instanceof Refusal ? t(problem.sentence) : problem.message;
  }
  if (made.flight !== flight) return;
  made.flight = null;
  draw(self, made);
}

function progress(made) {
  const of = made.found.length;
  const whole = Boolean(made.agreement);
  made.bar.value = made.done / of;
  made.bar.hidden = made.button.hidden = whole;
  made.button.textContent = made.flight ? t('Stop') : t('Go on');
  made.told.textContent = whole ? '' : t('{done} of {count} layers', { done: made.done, count: of });
  made.node.dataset.done = whole ? 'all' : String(made.done);
}

/** Every part that was tried: {layer, head, share, effect}, head null for an MLP. */
function tried(self, made) {
  const { heads } = self.value;
  const mlps = self.settings.part === 'mlps';
  return made.found.flatMap((effects, l) =>
    Array.from(effects ? (mlps ? effects.slice(heads) : effects.slice(0, heads)) : [], (effect, h) => ({
      name: mlps
        ? t('Layer {layer}, MLP', { layer: l + 1 })
        : t('Layer {layer}, head {head}', { layer: l + 1, head: h + 1 }),
      share: mlps ? self.data.mlps.values[l] : self.data.direct.values[l * heads + h],
      effect,
      pick: mlps ? undefined : () => made.pick(l + 1, h + 1),
    })).filter((one) => !Number.isNaN(one.effect)),
  );
}

const goalOf = (self) => `${self.key}/${asked(self)}`;

/** In view: asks for what is not there yet, and draws what is. */
export function drawEffects(self, made) {
  if (made.goal !== goalOf(self)) {
    made.flight?.abort();
    Object.assign(made, { goal: goalOf(self), done: 0, agreement: null, problem: '', flight: null });
    made.found = Array(self.value.layers).fill(null);
    run(self, made);
  }
  draw(self, made);
}

function draw(self, made) {
  const { ui, settings, value } = self;
  if (settings.show !== 'effects' || made.goal !== goalOf(self)) return; // an answer to another question
  const all = tried(self, made);
  const apart = [...all].sort((a, b) => Math.abs(b.effect - b.share) - Math.abs(a.effect - a.share));
  const width = Math.max(260, self.below.clientWidth);
  const room = self.below.clientHeight || 560;
  const values = all.flatMap((one) => [one.share, one.effect]);
  const [low, high] = still(
    self,
    `effects/${settings.part}/${asked(self)}`,
    Math.min(0, ...values),
    Math.max(0, ...values),
  );
  made.parts.forEach((one) => one.setAttribute('aria-pressed', String(one.dataset.part === settings.part)));
  made.title.textContent = t('Its own share, and what the answer loses without it');
  const [some, edge] = [settings.part === 'heads', (high - low || 1) * 0.06];
  const walls = some ? Math.min(300, 44 + 60 * value.heads) * self.zoom : 0;
  made.dots.draw({
    points: all.map((one) => ({
      x: one.share,
      y: one.effect,
      marked: apart.indexOf(one) < MARKED,
      pick: one.pick,
      told: () => [
        one.name,
        t('its own share {share}', { share: signed(one.share) }),
        t('without it the answer loses {effect}', { effect: signed(one.effect) }),
      ],
    })),
    low: low - edge,
    high: high + edge,
    across: t('its own share, in logits'),
    up: t('lost without it, in logits'),
    title: made.title.textContent,
    width: Math.min(width, 520 * self.zoom),
    height: Math.max(220 * self.zoom, Math.min(360 * self.zoom, room - walls - 150 * self.zoom)),
  });
  say(made, settings.part, apart[0]);
  progress(made);
  shown(made.totals, some);
  shown(ui.made.shares, some);
  if (!some) return;
  const effectsOfHeads = Array.from({ length: value.layers * value.heads }, (_, i) =>
    effectOf(self, made, i),
  );
  const direct = self.data.direct.values;
  const most = largest(self, 'walls', direct, effectsOfHeads);
  const title = t('What the answer loses without each head, up to {most}', { most: signed(most) });
  drawWall(self, made.totals, { values: effectsOfHeads, most, title, room: walls / 2, width });
  drawShares(self, ui.made, { values: direct, room: walls / 2, width, most });
}

/** The correlation, and where both disagree most, with the reason. */
function say(made, part, worst) {
  const found = made.agreement?.[part === 'heads' ? 0 : 1];
  made.figures.textContent =
    found === undefined
      ? ''
      : Number.isNaN(found)
        ? t('There is no correlation: there are too few, or all are alike.')
        : t('Correlation of share and loss: {value}', { value: fixed(found, 2) });
  made.why.textContent = made.problem
    ? made.problem
    : worst
      ? t(
          '{name} is furthest from the line: {share} itself, {effect} lost without it. Later layers read ' +
            'what it wrote, and react when it is gone; and the mean over other pictures that takes ' +
            'its place still says something.',
          { name: worst.name, share: signed(worst.share), effect: signed(worst.effect) },
        )
      : '';
}
