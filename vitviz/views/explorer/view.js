// Attention by hand: where a token looks, or who looks at it, in any head of any layer; a wall of all of them.

import { colourbar } from '../../canvas/colourbar.js';
import { tinted } from '../../canvas/colours.js';
import { el, fit, sheet } from '../../canvas/elements.js';
import { patchName, placeName, tokenName } from '../../canvas/names.js';
import { bounds, number, total } from '../../canvas/numbers.js';
import { cells, outline } from '../../canvas/pointer.js';
import { still } from '../../canvas/still.js';
import { tip } from '../../canvas/tip.js';
import { t } from '../../canvas/words.js';
import { distanceOf, entropy, first, nameOf, pinsOf, small, tokensOf } from './tokens.js';
import { drawWall } from './wall.js';

const pinColours = ['#e69f00', '#56b4e9', '#009e73', '#cc79a7']; // Okabe and Ito, told apart with any colour vision

/** Whether the map shows who attends to the token; the rollout knows only what a token has collected. */
const askedBy = (self) => self.settings.direction === 'column' && self.settings.show !== 'rollout';

/** Every token's weight for one query: its row of the attention, or its column; null where it has not been fetched. */
function weights(self, token) {
  const { layer, line } = self.data, { show, head } = self.settings, tokens = tokensOf(self), row = !askedBy(self);
  if (show === 'rollout') return token === self.settings.token ? self.ui.collected : null;
  if (!layer) return token === self.settings.token ? line.values : null;
  const heads = show === 'mean' ? Array.from({ length: self.value.heads }, (_, h) => h) : [head - 1], out = self.line || (self.line = new Float32Array(tokens));
  out.fill(0);
  for (const h of heads) {
    const from = h * tokens * tokens + (row ? token * tokens : token), step = row ? 1 : tokens;
    for (let i = 0, at = from; i < tokens; i++, at += step) out[i] += layer.values[at] / heads.length;
  }
  return out;
}

export default () => ({
  title: 'Attention, head by head',
  side: true,
  walled: true,
  caption: (self) => nameOf(self, self.settings.token),
  idle: (settings) => (settings.show === 'rollout' ? ['layer', 'head', 'direction', 'scale'] : settings.show === 'mean' ? ['head'] : []),
  reset: (self) => { self.held = false; self.line = null; },

  build(self) {
    self.held = false;
    self.query = null;
    const base = el('canvas'), heat = el('canvas', { class: 'vv-heat' }), plot = el('div', { class: 'vv-plot' }, base, heat), asked = outline(plot, 'vv-pinned'), spot = outline(plot), bar = colourbar();
    const marks = pinColours.map((colour) => { const mark = outline(plot); mark.node.classList.add('vv-mark'); mark.node.style.setProperty('--vv-pin', colour); return mark; });
    const title = el('p', { class: 'vv-h' }), facts = el('p', { class: 'vv-text' }), chips = el('div', { class: 'vv-buttons', role: 'group', 'aria-label': t('Prefix tokens') });
    const pin = el('button', { type: 'button', text: t('Pin this token'), 'data-export': 'no', onclick: () => this.pin(self) }), pinned = el('div', { class: 'vv-pins' });
    const wall = el('canvas'), wallPlot = el('div', { class: 'vv-plot' }, wall), now = outline(wallPlot, 'vv-pinned'), wallSpot = outline(wallPlot), wallTitle = el('p', { class: 'vv-h' }), wallBar = colourbar();
    self.figure.append(el('div', { class: 'vv-stack vv-centred' }, title, plot, bar.node, el('div', { class: 'vv-buttons' }, chips, pin), pinned));
    self.below.append(el('div', { class: 'vv-stack' }, wallTitle, wallPlot, wallBar.node, facts));
    cells(self, heat, {
      start: () => self.query - first(self),
      place: () => self.data && { rows: self.grid.rows, cols: self.grid.cols, x: 0, y: 0, ...self.ui.size },
      label: () => t('Attention over the picture. Brackets change the head, page keys the layer.'),
      name: (cell) => `${nameOf(self, self.query)}. ${this.told(self)}`,
      hover: (cell, event) => {
        const token = cell + first(self), reads = self.held && !event.keyboard;
        if (!reads && (event.keyboard || small(self))) this.ask(self, token);
        const { width, height } = self.ui.size, w = width / self.grid.cols, h = height / self.grid.rows, value = self.ui.weights?.[token];
        reads || !small(self) ? spot.put((cell % self.grid.cols) * w, Math.floor(cell / self.grid.cols) * h, w, h) : spot.hide();
        bar.mark(value ?? null);
        tip.show(event, reads || !small(self) ? t('weight {value}', { value: number(value ?? NaN) }) : patchName(self.grid, cell), placeName(self.grid, cell), self.held ? t('Click the outlined patch to let go') : t('Click to hold'));
      },
      leave: () => { spot.hide(); bar.mark(null); },
      pick: (cell) => {
        const token = cell + first(self);
        self.held = !(self.held && self.settings.token === token);
        this.choose(self, token);
      },
      hold: (cell, other) => { self.held = other.held; },
    });
    heat.addEventListener('keydown', (event) => {
      const { layer, head } = self.settings, step = { '[': ['head', head - 1], ']': ['head', head + 1], PageUp: ['layer', layer - 1], PageDown: ['layer', layer + 1] }[event.key];
      if (!step) return;
      event.preventDefault();
      self.set(step[0], Math.max(1, Math.min(step[0] === 'head' ? self.value.heads : self.value.layers, step[1])));
      self.say(t('Layer {layer}, head {head}', self.settings));
    });
    const cellOf = (cell) => {
      const layer = cell % self.value.layers, place = Math.floor(cell / self.value.layers);
      return { layer, head: place < self.value.heads ? self.ui.order[layer][place] : -1 };
    };
    const wallName = ({ layer, head }) => (head < 0 ? t('Layer {layer}, mean of heads', { layer: layer + 1 }) : t('Layer {layer}, head {head}', { layer: layer + 1, head: head + 1 }));
    cells(self, wall, {
      place: () => self.ui.wallPlace,
      label: () => t('All layers and heads.'),
      name: (cell) => wallName(cellOf(cell)),
      hover: (cell, event) => {
        const p = self.ui.wallPlace, at = cellOf(cell), distance = at.head < 0 ? undefined : distanceOf(self, at.layer, at.head), most = at.head < 0 ? null : self.data.wallmax.values[at.layer * self.value.heads + at.head];
        wallSpot.put(...p.box(cell));
        tip.show(event, wallName(at), most === null ? '' : t('largest weight {value}', { value: number(most) }), distance === undefined ? '' : t('attention distance {value} px', { value: distance.toFixed(1) }));
      },
      leave: () => wallSpot.hide(),
      pick: (cell) => {
        const at = cellOf(cell);
        if (at.head >= 0) self.settings.head = at.head + 1;
        self.settings.show = at.head < 0 ? 'mean' : 'head';
        self.set('layer', at.layer + 1);
      },
    });
    return { base, heat, asked, marks, bar, title, facts, chips, pin, pinned, wall, wallTitle, wallBar, now, size: null, weights: null, order: [], wallPlace: null };
  },

  pictures: () => ['upload'],
  items(self) {
    const more = small(self) ? ['layer'] : ['line', 'pinned'];
    return [...more, 'wall', 'wallmax', 'distances', 'entropy', ...(self.settings.show === 'rollout' ? ['rollout'] : [])];
  },

  draw(self) {
    const { ui, data, grid, settings } = self, [l, top, r, b] = self.photo.box;
    const aspect = (grid.cols * grid.patch[1]) / (grid.rows * grid.patch[0]), width = Math.min(self.width, aspect * self.tall), height = width / aspect;
    const base = [self.key, width, self.density].join('/');
    if (ui.drawn !== base) { // the picture changes seldom, the map often
      ui.drawn = base;
      const context = fit(ui.base, width, height, self.density);
      context.imageSmoothingQuality = 'high';
      context.drawImage(data.upload, l, top, r - l, b - top, 0, 0, width, height);
    }
    ui.heat.style.width = width + 'px';
    ui.heat.style.height = height + 'px';
    ui.heat.style.opacity = settings.opacity ?? 0.72;
    ui.size = { width, height };
    self.figure.firstElementChild.style.setProperty('--vv-drawn', width + 'px');
    self.query = settings.token;
    if (data.rollout) {
      ui.collected = new Float32Array(tokensOf(self)); // the rollout knows patches alone
      ui.collected.set(data.rollout.values, first(self));
    }
    drawWall(self);
    this.chips(self);
    this.paint(self);
    this.pins(self);
  },

  /** The query changes: what a hover does. */
  ask(self, token) {
    if (token === self.query || !weights(self, token)) return; // what has not been fetched is not claimed
    self.query = token;
    this.paint(self);
  },

  choose(self, token) {
    this.ask(self, token);
    self.set('token', token);
  },

  paint(self) {
    const { ui, grid, settings } = self, { rows, cols } = grid, skip = first(self), values = weights(self, self.query);
    if (!values) return;
    ui.weights = values;
    const asked = [self.query, settings.show, settings.layer, settings.head, settings.direction].join('/');
    const [, most] = still(self, asked, 0, bounds(values, skip)[1], (other) => other.data && other.ui.size && this.paint(other)), high = settings.scale === 'shared' && settings.show !== 'rollout' ? self.absolute : most;
    tinted(values, rows, cols, settings.colormap, 0, high || 1, skip, ui.heat);
    ui.bar.update(settings.colormap || 'viridis', 0, high || 1, settings.show === 'rollout' ? t('Share of attention over all layers') : t('Attention weight'));
    if (self.query >= skip) {
      const cell = self.query - skip, w = ui.size.width / cols, h = ui.size.height / rows;
      ui.asked.put((cell % cols) * w, Math.floor(cell / cols) * h, w, h);
    } else {
      ui.asked.hide();
    }
    const where = settings.show === 'rollout' ? t('Rollout') : settings.show === 'mean' ? t('Layer {layer}, mean of heads', settings) : t('Layer {layer}, head {head}', settings);
    ui.title.textContent = `${where} · ${askedBy(self) ? t('who attends to: {token}', { token: nameOf(self, self.query) }) : t('what it attends to: {token}', { token: nameOf(self, self.query) })}`;
    ui.facts.textContent = this.told(self);
    for (let i = 0; i < skip; i++) {
      ui.chips.children[i].lastChild.textContent = settings.show === 'rollout' ? '' : values[i].toFixed(3);
      ui.chips.children[i].setAttribute('aria-pressed', String(i === self.query));
    }
  },

  told(self) {
    const { settings, ui } = self, values = ui.weights, out = [], distance = distanceOf(self, settings.layer - 1, settings.head - 1);
    if (!values) return '';
    const share = total(values, first(self));
    out.push(askedBy(self) ? t('The patches give it {share} in sum.', { share: number(share) }) : t('On patches: {share}.', { share: share.toFixed(3) }));
    if (!askedBy(self) && settings.show !== 'rollout') out.push(t('Entropy of this row {value} nats.', { value: entropy(values, 0, values.length).toFixed(2) }));
    if (settings.show === 'head') out.push(t('This head: entropy {value} nats', { value: self.data.entropy.values[settings.head - 1].toFixed(2) }) + t(', distance {value} px.', { value: distance.toFixed(1) }));
    return out.join(' ');
  },

  chips(self) {
    const { chips } = self.ui, names = self.grid.prefix;
    if (chips.childElementCount !== names.length) {
      chips.replaceChildren(...names.map((name, i) => el('button', { type: 'button', onpointerenter: () => small(self) && !self.held && this.ask(self, i), onclick: () => { self.held = true; this.choose(self, i); } }, el('span', { text: tokenName(name) }), el('span', { class: 'vv-weight' }))));
    }
    chips.hidden = !names.length;
  },

  pin(self) {
    const pins = pinsOf(self), token = self.query, next = pins.includes(token) ? pins.filter((one) => one !== token) : [...pins, token].slice(-4);
    self.set('pins', next.join('.'));
  },

  pins(self) {
    const { ui, grid, settings, data } = self, { rows, cols } = grid, list = pinsOf(self), side = Math.max(112, Math.min(150, (self.width - 48) / 4)), skip = first(self);
    const parts = list.map((token, i) => {
      const found = data.layer || settings.show === 'rollout' ? weights(self, token) : data.pinned.values.subarray(i * tokensOf(self), (i + 1) * tokensOf(self));
      const canvas = found ? tinted(found, rows, cols, settings.colormap, 0, (settings.scale === 'shared' ? self.absolute : bounds(found, skip)[1]) || 1, skip) : sheet(cols, rows);
      canvas.className = 'vv-heat';
      canvas.style.cssText = `width:${side}px;height:${(side * rows * grid.patch[0]) / (cols * grid.patch[1])}px;position:static`;
      return el('figure', { style: `border-color:${pinColours[i]};width:${side + 6}px` }, canvas, el('figcaption', {}, el('span', { text: nameOf(self, token) }), el('button', { type: 'button', class: 'vv-more', 'data-export': 'no', 'aria-label': t('Unpin'), text: '×', onclick: () => self.set('pins', list.filter((one) => one !== token).join('.')) })));
    });
    ui.pinned.replaceChildren(...parts);
    ui.marks.forEach((mark, i) => {
      const cell = (list[i] ?? -1) - skip, w = ui.size.width / cols, h = ui.size.height / rows;
      mark.node.style.borderColor = pinColours[i];
      if (cell < 0) return mark.hide();
      mark.put((cell % cols) * w, Math.floor(cell / cols) * h, w, h);
      mark.node.style.borderColor = pinColours[i];
    });
    ui.pin.textContent = t('Pin this token');
    weights(self, self.query);
  },
});
