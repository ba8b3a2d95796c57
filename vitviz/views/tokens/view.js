// What patches become: which are alike, how they differ, how long they are, at any depth; and what heads have in common.

import { painted, tinted } from '../../canvas/colours.js';
import { el, fit } from '../../canvas/elements.js';
import { map } from '../../canvas/map.js';
import { patchName, placeName, tokenName } from '../../canvas/names.js';
import { bounds, number } from '../../canvas/numbers.js';
import { outline } from '../../canvas/pointer.js';
import { t } from '../../canvas/words.js';
import { depthName, histogram, matrix, strip } from './sides.js';

const pinColours = ['#e69f00', '#56b4e9', '#009e73', '#cc79a7']; // Okabe and Ito, told apart with any colour vision
const APPLIES = { // which settings change what is shown
  similarity: ['norm', 'mean', 'mark', 'opacity'],
  components: ['norm', 'basis', 'tint', 'mark', 'opacity'],
  norms: ['k', 'opacity'],
  heads: ['measure', 'alike'],
};
const skipOf = (self) => self.grid.prefix.length;
const sizeOf = (self) => self.grid.rows * self.grid.cols;
const tokensOf = (self) => skipOf(self) + sizeOf(self);
const pinsOf = (self) => (self.settings.pins ? self.settings.pins.split('.').map(Number) : []);
const small = (self) => self.summary.whole;
const marking = (self) => self.settings.show === 'norms' || (self.settings.mark === 'on' && self.settings.show !== 'heads');
const shortOf = (self, token) => (token < skipOf(self) ? tokenName(self.grid.prefix[token]) : patchName(self.grid, token - skipOf(self)));
const nameOf = (self, token) => (token < skipOf(self) ? shortOf(self, token) : `${shortOf(self, token)} (${placeName(self.grid, token - skipOf(self))})`);
const blockOf = (self) => Math.max(self.settings.depth, 1);

/** The cosines of one token with every other; null where they have not been fetched. */
function cosines(self, token) {
  const { cosines: all, line } = self.data, count = tokensOf(self);
  if (all) return all.values.subarray(token * count, (token + 1) * count);
  return token === self.settings.token ? line.values : null;
}

/** Both ends of the scale of cosines, and its colours: about zero without the mean patch. */
function scale(self) {
  if (self.settings.mean === 'out') return { low: -1, high: 1, colours: 'balance' };
  if (self.ui.scaled !== self.loaded) {
    const values = (self.data.cosines || self.data.line).values;
    [self.ui.scaled, self.ui.lowest] = [self.loaded, bounds(values)[0]];
  }
  return { low: Math.min(self.ui.lowest, 0.99), high: 1, colours: 'viridis' };
}

/** Numbers by layer and head as a matrix with a row for each head; of several numbers the first. */
function byHead(self, item, read) {
  const { layers, heads } = self.value, { values, shape } = self.data[item], step = shape[2] ?? 1;
  return Float32Array.from({ length: heads * layers }, (_, i) => read(values[step * ((i % layers) * heads + Math.floor(i / layers))]));
}

/** What stands out at this depth: median, MAD, the limit, and the patches above it. */
function outliers(self) {
  const { depth, k } = self.settings, { norms, usual } = self.data, count = tokensOf(self);
  const [median, mad] = usual.values.subarray(2 * depth, 2 * depth + 2), limit = median + k * mad;
  const all = norms.values.subarray(depth * count, (depth + 1) * count), values = all.subarray(skipOf(self));
  return { median, mad, limit, all, values, cells: Array.from(values.keys()).filter((cell) => values[cell] > limit) };
}

export default () => ({
  title: 'Tokens, depth by depth',
  side: true,
  walled: true,
  caption: (self) => (self.settings.show === 'similarity' ? nameOf(self, self.settings.token) : ''),
  reset: (self) => { self.held = false; },

  build(self) {
    self.held = false;
    self.query = null;
    const drawn = map(self, {
      told: (cell) => this.told(self, cell),
      hover: (cell, event) => {
        if (self.settings.show === 'similarity' && (!self.held || event.keyboard)) this.ask(self, cell + skipOf(self));
      },
      leave: () => { if (self.settings.show === 'similarity') this.ask(self, self.settings.token); },
      pick: (cell) => {
        const token = cell + skipOf(self);
        self.held = !(self.held && self.settings.token === token);
        self.set('token', token);
      },
    });
    const marks = el('canvas', { class: 'vv-framed' }), facts = el('p', { class: 'vv-text' });
    drawn.plot.append(marks);
    const pinned = pinColours.map((colour) => { const mark = outline(drawn.plot); mark.node.classList.add('vv-mark'); mark.node.style.borderColor = colour; return mark; });
    const chips = el('div', { class: 'vv-buttons', role: 'group', 'aria-label': t('Prefix tokens') }), pins = el('div', { class: 'vv-pins' });
    const pin = el('button', { type: 'button', text: t('Pin this token'), 'data-export': 'no', onclick: () => this.pin(self) });
    drawn.node.append(facts, el('div', { class: 'vv-row vv-asking' }, drawn.bar.node, el('div', { class: 'vv-buttons' }, chips, pin)), pins);
    const heads = matrix(self, { told: (row, col) => this.head(self, row, col), pick: (row, col) => self.set('depth', col + 1) });
    self.figure.append(el('div', { class: 'vv-stack' }, drawn.node, heads.node));
    const depths = strip(self), single = el('div', { class: 'vv-planes vv-singles' }), counted = histogram(self), largest = el('div', { class: 'vv-stack vv-tight' });
    const sinks = matrix(self, { told: (row, col) => this.sink(self, row, col), pick: (row, col) => self.set('depth', col + 1) });
    const alike = matrix(self, { told: (row, col) => this.pair(self, row, col) });
    self.below.append(el('div', { class: 'vv-stack' }, counted.node, largest, sinks.node, single, depths.node, alike.node));
    return { drawn, marks, facts, pinned, chips, pins, pin, heads, depths, single, counted, largest, sinks, alike };
  },

  pictures: (self) => (self.settings.show === 'heads' ? [] : ['upload']),
  items(self) {
    const { show, alike } = self.settings, marked = marking(self) && show !== 'norms' ? ['norms', 'usual'] : [];
    if (show === 'similarity') return [...(small(self) ? ['cosines'] : ['line', 'pinned']), 'by_depth', ...marked];
    if (show === 'components') return ['tints', 'components', 'shares', ...marked];
    return show === 'norms' ? ['norms', 'usual', 'largest', 'typical', 'received', 'sinks'] : ['entropy', 'prefix_entropy', alike];
  },

  draw(self) {
    const { ui, settings: { show } } = self, heads = show === 'heads';
    for (const field of self.root.querySelectorAll('.vv-field')) { // only what changes this figure
      const { name } = field.dataset, limit = name === 'k' && marking(self);
      field.hidden = !['show', 'depth', ...APPLIES[show]].includes(name) && !limit;
    }
    const shown = [[ui.drawn.node, !heads], [ui.heads.node, heads], [ui.counted.node, show === 'norms'], [ui.largest, show === 'norms'], [ui.sinks.node, show === 'norms'], [ui.single, show === 'components'], [ui.depths.node, !heads], [ui.alike.node, heads], [ui.chips, show === 'similarity' || show === 'norms'], [ui.pin, show === 'similarity'], [ui.pins, show === 'similarity']];
    for (const [node, on] of shown) node.hidden = !on;
    self.query = self.settings.token;
    if (self.room) self.tall = Math.min(self.tall, (self.width * self.grid.rows * self.grid.patch[0]) / (self.grid.cols * self.grid.patch[1]));
    this[show](self);
    if (!heads) this.marks(self);
  },

  /** The depth and the form of the tokens in view, as titles name them. */
  where(self) {
    const { depth, norm, show } = self.settings;
    return norm === 'final' && show !== 'norms' ? t('depth {depth}, through the final norm', { depth }) : t('depth {depth}, raw', { depth });
  },

  /** The room of what explains the figure: beside it as high as it, under two figures a third of the window, else free. */
  room(self) {
    const [above, own] = [self.figure, self.below].map((node) => node.getBoundingClientRect().top), beside = Math.abs(above - own) < 8;
    return { width: Math.max(240, self.below.clientWidth - 4), height: !self.room ? 700 : beside ? self.room : window.innerHeight * 0.34 };
  },

  similarity(self) {
    const { ui, grid } = self, { rows, cols } = grid, size = sizeOf(self), { low, high, colours } = scale(self), { width, height } = this.room(self);
    this.chips(self, () => t('Compare with this token'), (token) => { self.held = true; self.set('token', token); });
    this.paint(self);
    this.pins(self);
    const text = t('{token} at every depth', { token: shortOf(self, self.settings.token) });
    ui.depths.draw({ text, width, height: height - 46, paint: (depth, canvas) => tinted(self.data.by_depth.values, rows, cols, colours, low, high, depth * size, canvas) });
  },

  /** The query changes: what a hover does. */
  ask(self, token) {
    if (token === self.query || !self.data || !cosines(self, token)) return; // what has not been fetched is not claimed
    self.query = token;
    this.paint(self);
  },

  paint(self) {
    const { ui, query } = self, skip = skipOf(self), found = cosines(self, query), cell = self.settings.token - skip;
    const title = `${t('Similarity to {token}', { token: shortOf(self, query) })} · ${this.where(self)}`;
    const label = self.settings.mean === 'out' ? t('Cosine without the mean patch') : t('Cosine');
    ui.drawn.show({ values: found.subarray(skip), ...scale(self), label, title, held: self.held || query === self.settings.token ? cell : -1 });
    for (let i = 0; i < skip; i++) {
      ui.chips.children[i].lastChild.textContent = found[i].toFixed(2).replace('-', '−');
      ui.chips.children[i].setAttribute('aria-pressed', String(i === query));
    }
    ui.facts.hidden = true;
  },

  told(self, cell) {
    const { show, depth } = self.settings;
    if (show === 'similarity') return [self.held ? t('Click the outlined patch to let go') : t('Click to hold')];
    if (show !== 'norms') return [];
    const { median, mad, limit, values } = outliers(self), from = mad ? (values[cell] - median) / mad : 0;
    const heads = self.data.received.shape[0], count = tokensOf(self), token = cell + skipOf(self);
    const shares = Array.from({ length: heads }, (_, h) => self.data.received.values[h * count + token]);
    return [
      t('median {sign} {times} MAD', { sign: from < 0 ? '−' : '+', times: number(Math.abs(from)) }) + (values[cell] > limit ? ` · ${t('above the limit')}` : ''),
      t('attention that arrives in block {block}: {share}, an even share is {even}', { block: Math.max(depth, 1), share: number(shares.reduce((a, b) => a + b, 0) / heads), even: number(1 / count) }),
    ];
  },

  components(self) {
    const { ui, grid, data, settings } = self, { rows, cols } = grid, size = sizeOf(self), { depth } = settings, { width, height } = this.room(self);
    const scores = data.components.values, share = (c) => `${(100 * data.shares.values[3 * depth + c]).toFixed(1)} %`, one = Float32Array.from({ length: size }, (_, i) => scores[3 * i]);
    const pixels = data.tints.values.subarray(3 * depth * size, 3 * (depth + 1) * size);
    ui.drawn.show({
      values: one, pixels, low: 0, high: 1, colours: 'viridis', label: '', title: `${t('Principal components')} · ${this.where(self)}`, held: -1,
      said: (cell) => [0, 1, 2].map((c) => `${c + 1}: ${number(scores[3 * cell + c])}`).join('   '),
    });
    const turned = settings.tint === 'steady' ? t('Colours: the three together, turned to look like the depth before.') : t('Red, green, blue: components 1, 2, 3.');
    ui.facts.hidden = false;
    ui.facts.textContent = `${t('Shares of the variance: {first}, {second}, {third}.', { first: share(0), second: share(1), third: share(2) })} ${turned}`;
    if (ui.single.childElementCount !== 3) {
      ui.single.replaceChildren(...[0, 1, 2].map(() => el('figure', {}, el('canvas'), el('figcaption'))));
    }
    const aspect = (rows * grid.patch[0]) / (cols * grid.patch[1]), side = Math.min((width - 24) / 3, 170, (height * 0.3) / aspect);
    [...ui.single.children].forEach((figure, c) => {
      figure.style.width = `${side}px`;
      const values = Float32Array.from({ length: size }, (_, i) => scores[3 * i + c]), [low, high] = bounds(values.filter(Number.isFinite)), most = Math.max(-low, high) || 1;
      tinted(values, rows, cols, 'balance', -most, most, 0, figure.firstChild).style.cssText = `width:${side}px;height:${side * aspect}px;image-rendering:pixelated`;
      figure.lastChild.textContent = t('Component {number}: {share}', { number: c + 1, share: share(c) });
    });
    const text = settings.basis === 'all' ? t('Every depth, one basis for all') : t('Every depth, each in its own basis');
    ui.depths.draw({ text, width, height: height - 100 - side * aspect, most: 120, paint: (at, canvas) => painted(data.tints.values, one, rows, cols, canvas, 3 * at * size) });
  },

  norms(self) {
    const { ui, grid, data, settings } = self, { rows, cols } = grid, count = tokensOf(self), { depth } = settings, { width, height } = this.room(self);
    const { median, mad, limit, all, values, cells: above } = outliers(self), [low, high] = bounds(values.filter(Number.isFinite));
    ui.drawn.show({ values, low: Math.min(low, median), high, colours: 'magma', label: t('Norm of the token'), title: `${t('Norms')} · ${this.where(self)}`, held: -1 });
    ui.facts.hidden = true;
    this.chips(self, () => '', () => {});
    grid.prefix.forEach((_, i) => {
      ui.chips.children[i].lastChild.textContent = number(all[i]);
      ui.chips.children[i].classList.toggle('vv-beyond', all[i] > limit);
      ui.chips.children[i].removeAttribute('aria-pressed');
    });
    const facts = t('Median {median}, MAD {mad}; above the limit of {limit}: {count} of {all} patches.', { median: number(median), mad: number(mad), limit: number(limit), count: above.length, all: values.filter(Number.isFinite).length });
    const prefix = grid.prefix.map((name, i) => ({ name: tokenName(name), value: all[i] }));
    ui.counted.draw({ values, prefix, median, mad, limit, text: t('Norms of the patches; drag the limit'), facts, width, height: Math.max(110, Math.min(170, height * 0.26)) });
    const [numbers, typical] = [data.largest.values, data.typical.values[depth]], ranks = data.largest.shape[1];
    ui.largest.replaceChildren(el('p', { class: 'vv-h', text: t('Largest numbers, beside a median of {typical}', { typical: number(typical) }) }), el('p', { class: 'vv-text', text: Array.from({ length: ranks }, (_, rank) => {
      const [value, token, channel] = numbers.subarray(3 * (depth * ranks + rank), 3 * (depth * ranks + rank) + 3);
      return t('{value} in channel {channel} of {token}', { value: number(value), channel, token: shortOf(self, token) });
    }).join(' · ') }));
    const { layers, heads } = self.value, shares = byHead(self, 'sinks', (share) => share);
    const most = bounds(shares)[1] || 1;
    ui.sinks.draw({ values: shares, rows: heads, cols: layers, width, height: height * 0.3, most: 34, ends: [0, most], colours: 'viridis', across: t('block'), down: t('head'), text: t('Sinks: attention at one token, up to {most} %', { most: (100 * most).toFixed(0) }), label: '', col: depth - 1 });
    const used = ui.counted.node.offsetHeight + ui.sinks.node.offsetHeight + ui.largest.offsetHeight + 36, left = height - used - 30;
    ui.depths.node.hidden = left < 60;
    if (left >= 60) ui.depths.draw({ text: t('Every depth, each scaled by itself'), width, height: left, most: 96, paint: (at, canvas) => {
      const start = at * count + skipOf(self), part = data.norms.values.subarray(start, start + sizeOf(self)), [least, greatest] = bounds(part);
      tinted(part, rows, cols, 'magma', least, greatest, 0, canvas);
    } });
  },

  heads(self) {
    const { ui, data, value: { layers, heads }, settings } = self, looked = settings.measure === 'looked', { width, height } = this.room(self);
    const values = byHead(self, 'entropy', (nats) => (looked ? Math.exp(nats) : nats));
    const text = looked ? t('Tokens that each head looks at') : t('Entropy of each head’s attention'), label = looked ? t('Tokens looked at, of {count}', { count: tokensOf(self) }) : t('Entropy in nats; even attention has {most}', { most: number(Math.log(tokensOf(self))) });
    ui.heads.draw({ values, rows: heads, cols: layers, width: self.width, height: self.tall - 60, most: 64, ends: [looked ? 1 : 0, looked ? tokensOf(self) : Math.log(tokensOf(self))], colours: 'viridis', across: t('block'), down: t('head'), text, label, col: blockOf(self) - 1 });
    const cosine = settings.alike === 'cosine', found = data[settings.alike].values;
    const title = cosine ? t('Likeness of the heads of block {block}: cosine of their attention', { block: blockOf(self) }) : t('Difference of the heads of block {block}: Jensen-Shannon divergence', { block: blockOf(self) });
    ui.alike.draw({ values: found, rows: heads, cols: heads, width, height: height - 80, most: 56, ends: cosine ? [0, 1] : [0, Math.LN2], colours: cosine ? 'viridis' : 'magma', across: t('head'), down: t('head'), text: title, label: cosine ? t('Cosine') : t('Nats, at most {most}', { most: number(Math.LN2) }), col: -1 });
  },

  head(self, head, block) {
    const nats = self.data.entropy.values[block * self.value.heads + head], { prefix_entropy: own } = self.data, names = self.grid.prefix;
    const prefix = names.slice(0, 2).map((name, i) => t('{token} as the query: {value} nats', { token: tokenName(name), value: number(own.values[(block * self.value.heads + head) * names.length + i]) }));
    return [t('Layer {layer}, head {head}', { layer: block + 1, head: head + 1 }), t('{count} tokens looked at, entropy {value} nats', { count: number(Math.exp(nats)), value: number(nats) }), ...prefix];
  },

  sink(self, head, block) {
    const [share, token] = self.data.sinks.values.subarray(2 * (block * self.value.heads + head), 2 * (block * self.value.heads + head) + 2);
    return [t('Layer {layer}, head {head}', { layer: block + 1, head: head + 1 }), t('{share} arrives at {token}', { share: `${(100 * share).toFixed(1)} %`, token: nameOf(self, token) }), t('an even share is {even}', { even: `${(100 / tokensOf(self)).toFixed(2)} %` })];
  },

  pair(self, one, other) {
    const value = self.data[self.settings.alike].values[one * self.value.heads + other];
    return [t('Heads {one} and {other}', { one: one + 1, other: other + 1 }), self.settings.alike === 'cosine' ? t('cosine {value}', { value: value.toFixed(3) }) : t('{value} nats apart', { value: number(value) })];
  },

  chips(self, told, pick) {
    const { chips } = self.ui, names = self.grid.prefix;
    chips.replaceChildren(...names.map((name, i) => el('button', { type: 'button', title: told() || null, onclick: () => pick(i) }, el('span', { text: tokenName(name) }), el('span', { class: 'vv-weight' }))));
    chips.hidden = !names.length;
  },

  /** Frames around the patches above the limit. */
  marks(self) {
    const { marks, drawn: { size: { width, height } } } = self.ui, { rows, cols } = self.grid, [w, h] = [width / cols, height / rows];
    marks.hidden = !marking(self);
    if (marks.hidden) return;
    const context = fit(marks, width, height, self.density);
    for (const [line, colour] of [[4, 'rgb(0 0 0 / .8)'], [2, self.colour('--vv-orange')]]) {
      [context.lineWidth, context.strokeStyle] = [line, colour];
      for (const cell of outliers(self).cells) context.strokeRect((cell % cols) * w + 2, Math.floor(cell / cols) * h + 2, w - 4, h - 4);
    }
  },

  pin(self) {
    const list = pinsOf(self), { token } = self.settings;
    self.set('pins', (list.includes(token) ? list.filter((one) => one !== token) : [...list, token].slice(-4)).join('.'));
  },

  pins(self) {
    const { ui, grid: { rows, cols, patch }, data } = self, list = pinsOf(self).slice(0, 4), skip = skipOf(self), count = tokensOf(self), { low, high, colours } = scale(self);
    const side = Math.max(72, Math.min(120, (self.width - 48) / 4));
    ui.pins.replaceChildren(...list.map((token, i) => {
      const values = data.cosines ? cosines(self, token) : data.pinned.values.subarray(i * count, (i + 1) * count), canvas = tinted(values, rows, cols, colours, low, high, skip);
      canvas.style.cssText = `width:${side}px;height:${(side * rows * patch[0]) / (cols * patch[1])}px;image-rendering:pixelated`;
      return el('figure', { style: `border-color:${pinColours[i]};width:${side + 6}px` }, canvas, el('figcaption', {}, el('span', { text: shortOf(self, token) }), el('button', { type: 'button', class: 'vv-more', 'data-export': 'no', 'aria-label': t('Unpin'), text: '×', onclick: () => self.set('pins', list.filter((one) => one !== token).join('.')) })));
    }));
    ui.pinned.forEach((mark, i) => (list[i] >= skip && self.settings.show === 'similarity' ? ui.drawn.put(mark, list[i] - skip) : mark.hide()));
  },
});
