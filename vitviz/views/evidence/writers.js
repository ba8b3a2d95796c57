// Upstream sources: what a head's inputs consist of. A trail of heads back from the output, bars of all
// sources by layer, and a grid of earlier heads. Check by edge ablation: an edge's contribution against a
// forward pass without the edge.

import { unpacked } from '../../frontend/data.js';
import { button, div, el, selection, span } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { chartBeside } from '../../frontend/plotly_chart.js';
import { reach, still } from '../../frontend/shared_scale.js';
import { drawWall, largest, wall } from './account.js';
import { asked, either, roomBeside, shown, signed, sumName } from './lines.js';
import { stepwise } from './steps.js';

const held = (self) => self.settings.beside === 'truth';
const inView = (self) => self.settings.show === 'writers' && held(self);

/** The edge-ablation panel; `pick(writer)` gets the clicked source. */
function truth(self, pick) {
  const made = stepwise(self, { item: 'truth', next, draw, pick: ({ writer }) => writer && pick(writer) });
  const choice = (name, label) =>
    selection(
      { 'aria-label': label, onchange: ({ target }) => self.set(name, target.value) },
      self.control(name).options.map(([value, text]) => [value, t(text)]),
    );
  made.choices = { into: choice('into', t('Edge into')), parts_as: choice('parts_as', t('Replacement')) };
  made.open = button(t('Check by edge ablation'), () => self.set('beside', held(self) ? 'heads' : 'truth'));
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

/** Draws the edge ablation of this head in the given size, if selected; returns whether it is selected. */
function drawTruth(self, made, width, tall) {
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
  if (!inView(self)) return;
  const { figure } = made;
  made.drawn.node.hidden = !figure;
  if (figure) made.drawn.draw(withChosen(figure, self.settings.writer), ...made.room);
  const { done = 0, count = 1 } = figure ?? {};
  made.progress(count, done ? t('{done} of {count} edges', { done, count }) : '', done);
}

/** The chart with the selected source in another colour. */
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

const NAMES = { embedding: 'the embedding', positions: 'the positions', constant: 'inner biases' };

/** The panel, hidden until selected. */
export function writers(self) {
  const made = {};
  Object.assign(made, {
    drawn: chartBeside(self, { pick: ({ writer }) => writer && pick(self, made, writer) }),
    crumbs: el('nav', { class: 'vv-buttons vv-crumbs', 'aria-label': t('From the prediction back') }),
    on: button('', () => open(self, made, self.settings.writer.split('.').slice(1)), { 'data-export': 'no' }),
    wall: wall(self, (layer, head) => pick(self, made, `head.${layer}.${head}`)),
    held: truth(self, (writer) => pick(self, made, writer)),
  });
  made.node = el(
    'div',
    { class: 'vv-stack', hidden: true },
    made.crumbs,
    made.drawn.node,
    made.held.node,
    made.wall.node,
    div('vv-buttons', made.on),
  );
  return made;
}

const wanted = ['writer_map', 'writer_heads', 'trail'];

/** The items needed while this panel is shown. */
export const written = (self) => (shown(self) === 'writers' ? wanted : []);

const path = (steps) => steps.map(([layer, head]) => `${layer}.${head}`).join('-');
const headName = ([layer, head]) => t('Layer {layer}, head {head}', { layer, head });

/** The displayed name of a source in the setting's notation. */
function named(writer) {
  const [kind, layer, head] = writer.split('.');
  if (kind === 'head') return headName([layer, head]);
  if (kind === 'mlp') return t('Layer {layer}, MLP', { layer });
  return kind === 'bias' ? t('Layer {layer}, bias', { layer }) : t(NAMES[kind]);
}

/** Selects a source; a second click on a head follows that head's own sources. */
function pick(self, made, writer) {
  const [kind, layer, head] = writer.split('.');
  const last = made.steps.at(-1);
  if (kind === 'head' && Number(layer) >= last[0]) return;
  if (kind === 'head' && self.settings.writer === writer) return open(self, made, [layer, head]);
  self.set('writer', self.settings.writer === writer ? '' : writer);
}

/** Goes one step further back. */
function open(self, made, step) {
  self.settings.writer = '';
  self.set('trail', path([...made.steps, step]));
}

/** The contribution of one source as a map, or of all. */
export function writtenMap(self) {
  const { values } = self.data.writer_map;
  const last = unpacked(self.data.trail).at(-1);
  const name = `writers/${path([last])}/${self.settings.writer}/${asked(self)}`;
  const most = still(self, name, 0, reach(Array.from(values).filter(Number.isFinite)))[1] || 1;
  const who = self.settings.writer ? named(self.settings.writer) : t('all sources');
  return {
    values,
    low: -most,
    high: most,
    colours: 'balance',
    label: t('Contribution to the {sum}: negative, positive', { sum: sumName(self) }),
    title: t('{head}: {writer}, by patch', { writer: who, head: headName(last) }),
  };
}

export function drawWriters(self, made) {
  made.steps = unpacked(self.data.trail);
  const last = made.steps.at(-1);
  const [size, room] = [self.zoom, roomBeside(self, 520)];
  const [width, tall] = [Math.max(160, self.across), Math.max(140 * size, Math.min(250 * size, room * 0.36))];
  crumbs(self, made);
  // the bar of the selected source; for a head, that of the head's layer
  const chosen = self.settings.writer.replace(/^head\.(\d+).*/, 'heads.$1');
  made.drawn.draw({ ...unpacked(self.data.chart), chosen }, width, tall);
  const held = drawTruth(self, made.held, width, Math.max(170 * size, room - tall - 240 * size));
  made.drawn.node.classList.toggle('vv-brief', held);
  made.wall.node.hidden = held;
  if (held) return;
  const { values } = self.data.writer_heads;
  const most = largest(self, `writers/${path([last])}`, values);
  drawWall(self, made.wall, {
    values,
    most,
    title: t('Earlier heads, colour scale {most}; click twice to follow one', { most: either(most) }),
    room: Math.max(160 * size, room - tall - 226 * size),
    width,
    chosen: /^head\.(.*)/.exec(self.settings.writer)?.[1] ?? '',
  });
}

/** The trail as buttons, starting with the output, and the button that follows a head. */
function crumbs(self, made) {
  const { writer } = self.settings;
  const back = (count) => {
    self.settings.writer = '';
    self.set('trail', path(made.steps.slice(0, count)));
  };
  const found = made.steps.map(([layer, head, share], i) =>
    button(`← ${headName([layer, head])} ${signed(share)}`, () => back(i + 1), {
      'aria-current': i === made.steps.length - 1 ? 'step' : undefined,
    }),
  );
  made.crumbs.replaceChildren(span(t('the output')), ...found);
  const head = writer.startsWith('head.');
  made.on.disabled = !head;
  made.on.textContent = head ? t('Follow {head}', { head: named(writer) }) : t('Select a head to follow');
}
