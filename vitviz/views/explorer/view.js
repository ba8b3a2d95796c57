// Attention explorer: attention from or to a token in any head of any layer; a grid of all heads; and one
// score before the softmax, decomposed by the sources of its query and key.

import { colourbar } from '../../frontend/colours.js';
import { unpacked } from '../../frontend/data.js';
import { button, div, el, stack } from '../../frontend/elements.js';
import { headKey } from '../../frontend/highlight.js';
import { nameOf, patchName, placeName, t } from '../../frontend/i18n.js';
import { ground } from '../../frontend/map.js';
import { matrix } from '../../frontend/matrix.js';
import { number } from '../../frontend/numbers.js';
import { framing } from '../../frontend/outliers.js';
import { pinMarks, togglePin } from '../../frontend/pins.js';
import { cells, outline, rowByRow, tip } from '../../frontend/pointer.js';
import { ablated, leftOut, nearestShown } from '../../frontend/removed_patches.js';
import { opening } from './opening.js';
import { ask, chooseToken, paint, showChips, showPins, told } from './query.js';
import { deeper, distanceOf, first, put, small, tokensOf } from './tokens.js';
import { drawWall } from './wall.js';

const FRAMES = ['var(--vv-orange)', 'var(--vv-blue)']; // of the key, and of the key it is compared with

/** The panel; `slot` is the setting that a click in the image changes. */
function score(self, plot) {
  /** @type {any} */
  const made = { slot: 'key', told: null, frames: FRAMES.map((colour) => outline(plot, '', colour)) };
  const head = (i) => headKey(made.told.heads[i]);
  made.matrix = matrix(self, { key: (row, col) => head(col) || head(row) });
  made.open = button(t('Explain score'), () => self.set('beside', deeper(self) ? 'wall' : 'score'), {
    'data-export': 'no',
    title: t('Score by source'),
  });
  made.slots = el('div', { class: 'vv-buttons', 'data-export': 'no' });
  [made.above, made.notes] = [el('p', { class: 'vv-text' }), el('p', { class: 'vv-text' })];
  made.node = stack(made.slots, made.above, made.matrix.node, made.notes);
  return made;
}

function drawScore(self, made) {
  made.node.hidden = !deeper(self);
  made.open.setAttribute('aria-pressed', String(deeper(self)));
  made.frames.forEach((frame) => frame.hide());
  if (!deeper(self)) return;
  made.told = unpacked(self.data.score);
  const { slots = [], places, above = '', matrix: figure, notes } = made.told;
  const choose = (slot) => {
    made.slot = slot;
    self.draw();
    made.slots.querySelector('[aria-pressed=true]').focus();
  };
  const choice = ([slot, text]) =>
    button(t(text), () => choose(slot), { 'aria-pressed': String(slot === made.slot) });
  made.slots.replaceChildren(
    el('span', { style: 'width:100%', text: t('A click on the image selects:') }),
    ...slots.map(choice),
  );
  made.above.textContent = t(above);
  made.notes.textContent = notes.map((one) => t(one)).join(' ');
  made.slots.hidden = made.matrix.node.hidden = !figure;
  if (!figure) return;
  made.frames.forEach((frame, i) => {
    const place = slots.findIndex(([slot]) => slot === ['key', 'against'][i]);
    put(self, frame, places[place]);
  });
  const width = Math.max(280, self.across - 4);
  const used = made.node.offsetHeight - made.matrix.node.offsetHeight + 100 * self.zoom;
  const height = Math.max(150 * self.zoom, self.deep ? self.deep - used : width);
  made.matrix.draw(figure, { width, height });
}

export default () => ({
  title: 'Attention, head by head',
  side: true,
  walled: true,
  caption: (self) => nameOf(self, self.settings.token),
  reset: (self) => {
    self.held = false;
    self.line = null;
  },

  build(self) {
    self.held = false;
    self.query = null;
    const base = ground(self);
    const heat = el('canvas', { class: 'vv-heat' });
    const plot = div('vv-plot', base.canvas, heat);
    const asked = outline(plot, 'vv-pinned');
    const spot = outline(plot);
    const framed = framing(self, plot);
    const bar = colourbar();
    const marks = pinMarks(plot);
    const title = el('p', { class: 'vv-h' });
    const facts = el('p', { class: 'vv-text' });
    const chips = el('div', { class: 'vv-buttons', role: 'group', 'aria-label': t('Prefix tokens') });
    const pin = button(t('Pin this token'), () => togglePin(self, self.query), { 'data-export': 'no' });
    const pinned = div('vv-pins');
    const wall = el('canvas');
    const wallPlot = div('vv-plot', wall);
    const now = outline(wallPlot, 'vv-pinned');
    const wallSpot = outline(wallPlot);
    const wallTitle = el('p', { class: 'vv-h' });
    const wallBar = colourbar();
    const why = score(self, plot);
    const begun = opening(self);
    const buttons = div('vv-buttons', chips, pin, why.open);
    self.figure.append(div('vv-stack vv-centred', title, plot, bar.node, framed.node, buttons, pinned));
    const walls = stack(begun.node, wallTitle, wallPlot, wallBar.node, facts);
    self.below.append(walls, why.node);
    cells(self, heat, {
      start: () => self.query - first(self),
      place: () => self.data && { rows: self.grid.rows, cols: self.grid.cols, x: 0, y: 0, ...self.ui.size },
      label: () => [
        title.textContent,
        t('Attention over the image. Brackets change the head, page keys the layer.'),
      ],
      name: () => `${nameOf(self, self.query)}. ${told(self)}`,
      hover: (cell, event) => {
        const token = cell + first(self);
        const reads = deeper(self) || (self.held && !event.keyboard);
        if (!reads && (event.keyboard || small(self))) ask(self, token);
        const value = self.ui.weights?.[token];
        reads || !small(self) ? put(self, spot, token) : spot.hide();
        bar.mark(value ?? null);
        tip.show(
          event,
          reads || !small(self) ? t('weight {value}', { value: number(value ?? NaN) }) : patchName(cell),
          placeName(self.grid, cell),
          deeper(self)
            ? t('Click to choose')
            : self.held
              ? t('Click the outlined patch to release it')
              : t('Click to lock'),
        );
      },
      leave: () => {
        spot.hide();
        bar.mark(null);
      },
      pick: (cell) => {
        const token = cell + first(self);
        if (!deeper(self)) self.held = !(self.held && self.settings.token === token);
        chooseToken(self, token);
      },
      hold: (_cell, other) => (self.held = other.held),
    });
    heat.addEventListener('keydown', (event) => {
      const step = { '[': ['head', -1], ']': ['head', 1], PageUp: ['layer', -1], PageDown: ['layer', 1] };
      if (!step[event.key]) return;
      const [name, by] = step[event.key];
      event.preventDefault();
      self.set(name, Math.max(1, Math.min(self.value[`${name}s`], self.settings[name] + by)));
      self.say(t('Layer {layer}, head {head}', self.settings));
    });
    const cellOf = (cell) => {
      const { layer, place } = self.ui.wallPlace.at(cell);
      return { layer, head: place < self.value.heads ? self.ui.order[layer][place] : -1 };
    };
    const wallName = ({ layer, head }) =>
      head < 0
        ? t('Layer {layer}, mean of heads', { layer: layer + 1 })
        : t('Layer {layer}, head {head}', { layer: layer + 1, head: head + 1 });
    cells(self, wall, {
      place: () => self.ui.wallPlace,
      label: () => t('All layers and heads.'),
      name: (cell) => wallName(cellOf(cell)),
      hover: (cell, event) => {
        const p = self.ui.wallPlace;
        const at = cellOf(cell);
        const distance = at.head < 0 ? undefined : distanceOf(self, at.layer, at.head);
        const most = at.head < 0 ? null : self.data.wallmax.values[at.layer * self.value.heads + at.head];
        wallSpot.put(...p.slot(p.at(cell).place, at.layer));
        const weight = most === null ? '' : t('largest weight {value}', { value: number(most) });
        const value = distance?.toFixed(1);
        const far = value ? t('attention distance {value} px', { value }) : '';
        const gone = ablated(self, { layer: at.layer + 1, head: at.head + 1 }) ? [t('Ablated')] : [];
        tip.show(event, wallName(at), ...gone, weight, far);
      },
      leave: () => wallSpot.hide(),
      pick: (cell) => {
        const at = cellOf(cell);
        if (at.head >= 0) self.settings.head = at.head + 1;
        self.settings.show = at.head < 0 ? 'mean' : 'head';
        self.set('layer', at.layer + 1);
      },
    });
    const beside = { wall, wallTitle, wallBar, now, facts, walls, score: why, opening: begun };
    return { base, heat, asked, framed, marks, bar, title, chips, pin, pinned, ...beside };
  },

  pictures: () => ['upload'],
  items(self) {
    const more = small(self) ? ['layer'] : ['line', 'pinned'];
    const rollout = self.settings.show === 'rollout' ? ['rollout'] : [];
    const always = ['wall', 'wallmax', 'distances', 'entropy'];
    return [...more, ...always, ...rollout, ...(deeper(self) ? ['score'] : [])];
  },

  draw(self) {
    const { ui, data, grid, settings } = self;
    const aspect = (grid.cols * grid.patch[1]) / (grid.rows * grid.patch[0]);
    const width = Math.min(self.width, aspect * self.tall);
    const height = width / aspect;
    ui.size = { width, height };
    ui.base.draw(ui.size);
    ui.heat.style.cssText = `width:${width}px;height:${height}px;opacity:${settings.opacity ?? 0.72}`;
    self.figure.firstElementChild.style.setProperty('--vv-drawn', `${width}px`);
    const asked = settings.token - first(self);
    if (leftOut(self, asked)) return self.set('token', nearestShown(self, asked) + first(self));
    self.query = settings.token;
    ui.opening.update();
    if (data.rollout) {
      ui.collected = new Float32Array(tokensOf(self)); // rollout has values for patches only
      ui.collected.set(data.rollout.values, first(self));
    }
    ui.walls.hidden = deeper(self);
    drawScore(self, ui.score);
    showChips(self);
    paint(self);
    drawWall(self);
    showPins(self);
    ui.framed.draw(ui.size, rowByRow(grid, ui.size));
  },
});
