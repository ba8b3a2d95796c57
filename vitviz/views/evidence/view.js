// Why this answer: the map of what spoke for and against a class, the account beside it, and the sum that balances.

import { el } from '../../canvas/elements.js';
import { map } from '../../canvas/map.js';
import { patchName } from '../../canvas/names.js';
import { bounds, number, total } from '../../canvas/numbers.js';
import { outline } from '../../canvas/pointer.js';
import { t } from '../../canvas/words.js';
import { account, drawAccount, drawForming, signed, wallOf } from './account.js';

const unpack = (item) => JSON.parse(new TextDecoder().decode(item.values));
const listed = (text) => (text ? text.split('.').map(Number) : []);

/** The head, or the layer's heads, that are in view: numbers from 1; [] for all. */
const chosenOf = (self) => (self.settings.chosen ? self.settings.chosen.split('.').map(Number) : []);

/** All lines of the account, summed into what a reader is told. */
function sums(self) {
  const { lines, sources, mlps, biases } = self.data, [start, pooling, normBias, headBias, logit, sum] = lines.values;
  return {
    start, pooling, logit, sum,
    patches: sources.values[0],
    prefix: Array.from(sources.values.slice(1)),
    mlps: total(mlps.values),
    biases: total(biases.values) + normBias + headBias,
  };
}

/** A class by its number, as the visitor reads it. */
function className(self, index) {
  const known = self.ui.classes?.find((one) => one.class === index);
  return known?.name ?? self.ui.labels?.[index] ?? t('class {number}', { number: index });
}

function targets(self) {
  const asked = self.settings.target === 'top' ? [self.summary.top[0]] : self.settings.target.split('-').map(Number);
  return { of: asked[0], rather: asked[1] ?? null };
}

/** One of the two pickers: the likeliest classes, and with `searched` all others by typing. */
function picker(self, label, change) {
  const field = el('input', { type: 'text', class: 'vv-class', 'aria-label': label, list: `vv-classes-${self.name}`, autocomplete: 'off' });
  field.addEventListener('focus', () => field.select());
  field.addEventListener('change', () => change(field));
  return field;
}

export default () => ({
  title: 'Evidence',
  walled: true,
  pictures: () => ['upload'],
  items: (self) => ['map', 'heads', 'mlps', 'biases', 'lines', 'explained', 'sources', 'classes', 'labels', 'forming', 'share'],
  idle: (settings) => (settings.method === 'ledger' ? [] : ['relative']),
  caption: (self) => `${className(self, targets(self).of)}: ${self.ui.balance.textContent}`,
  reset: (self) => self.ui.marks?.forEach((mark) => mark.hide()),

  build(self) {
    const rather = picker(self, t('rather than'), (field) => this.choose(self, undefined, field));
    const of = picker(self, t('Why'), (field) => this.choose(self, field, undefined));
    const list = el('datalist', { id: `vv-classes-${self.name}` });
    const asked = el('p', { class: 'vv-asked' }, el('span', { text: t('Why') }), of, el('span', { text: t('rather than') }), rather, list);
    const drawn = map(self, {
      told: (cell, value) => [value >= 0 ? t('speaks for it, in logits') : t('speaks against it, in logits'), t('Click to choose, drag for several')],
      pick: (cell) => this.toggle(self, [cell]),
    });
    const balance = el('strong', { class: 'vv-balance' }), parts = el('p', { class: 'vv-text' }), picked = el('p', { class: 'vv-text vv-picked', role: 'status' });
    const away = el('button', { type: 'button', class: 'vv-away', 'data-export': 'no', onclick: () => this.away(self) });
    const back = el('button', { type: 'button', 'data-export': 'no', text: t('Choose nothing'), onclick: () => this.clear(self) });
    self.figure.append(el('div', { class: 'vv-stack' }, asked, drawn.node, el('p', { class: 'vv-sum' }, balance), parts, el('div', { class: 'vv-buttons' }, away, back, picked)));
    const made = account(self, { pick: (layer, head) => this.head(self, layer, head) });
    self.below.append(made.node);
    const plot = drawn.heat.parentElement, marks = Array.from({ length: 64 }, () => outline(plot, 'vv-key'));
    this.drags(self, drawn);
    return { of, rather, list, drawn, balance, parts, picked, away, back, made, marks, listed: '', classes: [], labels: [] };
  },

  /** A rectangle drawn over the picture chooses its patches. */
  drags(self, { heat, at }) {
    let from = -1;
    heat.addEventListener('pointerdown', (event) => { from = at(event); });
    heat.addEventListener('pointerup', (event) => {
      const to = at(event), { cols } = self.grid;
      if (from >= 0 && to >= 0 && to !== from) {
        const rows = [from, to].map((cell) => Math.floor(cell / cols)).sort((a, b) => a - b), across = [from, to].map((cell) => cell % cols).sort((a, b) => a - b), found = [];
        for (let r = rows[0]; r <= rows[1]; r++) for (let c = across[0]; c <= across[1]; c++) found.push(r * cols + c);
        this.toggle(self, found, true);
        self.dragged = true;
      }
      from = -1;
    });
  },

  toggle(self, cells, only = false) {
    if (self.dragged) { // the click that ends a drag
      self.dragged = false;
      if (!only) return;
    }
    const now = only ? [] : listed(self.settings.patches), [cell] = cells;
    const next = only ? cells : now.includes(cell) ? now.filter((one) => one !== cell) : [...now, cell];
    self.settings.chosen = '';
    self.set('patches', next.sort((a, b) => a - b).join('.'));
  },

  head(self, layer, head) {
    const text = head === null ? String(layer) : `${layer}.${head}`;
    self.settings.patches = '';
    self.set('chosen', self.settings.chosen === text ? '' : text);
  },

  clear(self) {
    self.settings.patches = '';
    self.set('chosen', '');
  },

  /** Takes away what is chosen: every view then shows the model without it. */
  away(self) {
    const [layer, head] = chosenOf(self), patches = listed(self.settings.patches);
    const heads = layer ? (head ? [`${layer}.${head}`] : Array.from({ length: self.value.heads }, (_, h) => `${layer}.${h + 1}`)) : [];
    document.dispatchEvent(new CustomEvent('vitviz:without', { detail: { heads, patches } }));
    this.clear(self);
  },

  choose(self, of, rather) {
    const { labels, classes } = self.ui, now = targets(self);
    const find = (field, kept) => {
      if (!field) return kept;
      const text = field.value.trim(), known = classes.find((one) => one.name === text);
      const index = known ? known.class : labels.indexOf(text);
      return index >= 0 ? index : /^\d+$/.test(text) ? Number(text) : null;
    };
    const first = find(of, now.of) ?? now.of, second = find(rather, now.rather);
    self.set('target', second === null || second === first ? String(first) : `${first}-${second}`);
  },

  draw(self) {
    const { ui, data, settings, grid } = self, { of, rather } = targets(self);
    [ui.classes, ui.labels] = [unpack(data.classes), unpack(data.labels)];
    this.pickers(self, of, rather);
    const values = data.map.values, [low, high] = bounds(values), most = Math.max(-low, high) || 1, chosen = chosenOf(self);
    const shared = Math.max(most, ...self.beside().map((other) => other.most || 0));
    self.most = most;
    const direct = settings.method === 'ledger', method = self.control('method').options.find(([name]) => name === settings.method)[1];
    const what = !direct ? t(method) : chosen.length === 2 ? t('Layer {layer}, head {head}', { layer: chosen[0], head: chosen[1] }) : chosen.length ? t('All heads of layer {layer}', { layer: chosen[0] }) : t('All heads, by the patch they took it from');
    ui.drawn.show({ values, low: -shared, high: shared, colours: 'balance', label: direct ? t('Share of the logit: against, for') : t('Relevance of each patch, as the method gives it'), title: what });
    const { width, height } = ui.drawn.heat.getBoundingClientRect(), picked = listed(settings.patches);
    ui.marks.forEach((mark, i) => {
      if (i >= picked.length) return mark.hide();
      mark.put((picked[i] % grid.cols) * (width / grid.cols), Math.floor(picked[i] / grid.cols) * (height / grid.rows), width / grid.cols, height / grid.rows);
    });
    this.tell(self, picked, chosen);
    if (settings.show === 'forming') drawForming(self, ui.made); else drawAccount(self, ui.made, sums(self));
  },

  pickers(self, of, rather) {
    const { ui } = self, names = [...ui.classes.map((one) => one.name), ...ui.labels];
    if (ui.listed !== names.join()) {
      ui.listed = names.join();
      ui.list.replaceChildren(...[...new Set(names)].map((name) => el('option', { value: name })));
    }
    ui.of.value = className(self, of);
    ui.rather.value = rather === null ? '' : className(self, rather);
    ui.rather.placeholder = t('– (all others)');
  },

  /** What another method's map explains of the logit, and what it leaves unexplained. */
  tellMap(self, all, picked) {
    const { ui, data } = self, [explained, rest] = data.explained.values, fixed = (value) => value.toFixed(3).replace('-', '−');
    const values = data.map.values, nothing = values.every((value) => value <= 0);
    ui.balance.textContent = Number.isNaN(explained) ? t('No balance') : t('{sum} of {logit}', { sum: fixed(explained), logit: fixed(all.logit) });
    const said = Number.isNaN(explained) ? t('The sum of this map means nothing: its numbers only order the patches.') : t('Map, prefix and constants together; {rest} is left unexplained.', { rest: fixed(rest) });
    ui.parts.textContent = nothing ? `${t('Nothing positive here.')} ${said}` : said;
    ui.away.hidden = ui.back.hidden = !picked.length;
    ui.away.textContent = picked.length === 1 ? t('Take this patch away') : t('Take these patches away');
    ui.picked.textContent = '';
  },

  /** The sum, and what of it is chosen: both add up before the reader. */
  tell(self, picked, [layer, head]) {
    const { ui, grid, data } = self, all = sums(self), names = grid.prefix;
    ui.balance.textContent = t('{sum} of {logit}', { sum: all.sum.toFixed(3).replace('-', '−'), logit: all.logit.toFixed(3).replace('-', '−') });
    if (self.settings.method !== 'ledger') return this.tellMap(self, all, picked);
    const lines = [
      [t('patches'), all.patches],
      ...names.map((name, i) => [t('the {name} token', { name: t(name) }), all.prefix[i]]),
      [t('start'), all.start], [t('MLPs'), all.mlps], [t('biases'), all.biases],
      ...(all.pooling ? [[t('attention pooling'), all.pooling]] : []),
    ];
    ui.parts.textContent = `= ${lines.map(([name, value]) => `${name} ${signed(value)}`).join('  ')}`;
    const share = layer ? (head ? data.heads.values[(layer - 1) * self.value.heads + head - 1] : wallOf(self).slice((layer - 1) * self.value.heads, layer * self.value.heads).reduce((a, b) => a + b, 0)) : null;
    ui.away.hidden = ui.back.hidden = !layer && !picked.length;
    ui.away.textContent = layer ? (head ? t('Take this head away') : t('Take these heads away')) : picked.length === 1 ? t('Take this patch away') : t('Take these patches away');
    if (layer) {
      ui.picked.textContent = t('Chosen: {share}; everything else: {rest}', { share: signed(share), rest: signed(all.sum - share) });
    } else if (picked.length) {
      const sum = picked.reduce((found, cell) => found + data.map.values[cell], 0), name = picked.length === 1 ? patchName(grid, picked[0]) : t('{count} patches', { count: picked.length });
      ui.picked.textContent = t('{name}: {share}, by head at the right; everything else: {rest}', { name, share: signed(sum), rest: signed(all.sum - sum) });
    } else {
      ui.picked.textContent = '';
    }
  },
});
