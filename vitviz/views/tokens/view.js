// Representations: similarity, principal components and norms of the tokens; similarity of heads.

import { unpacked } from '../../frontend/data.js';
import { button, div, el, stack } from '../../frontend/elements.js';
import { headKey } from '../../frontend/highlight.js';
import { nameOf, t } from '../../frontend/i18n.js';
import { map } from '../../frontend/map.js';
import { matrix } from '../../frontend/matrix.js';
import { number } from '../../frontend/numbers.js';
import { tell } from '../../frontend/outliers.js';
import { pinMarks, togglePin } from '../../frontend/pins.js';
import { leftOut, nearestShown } from '../../frontend/removed_patches.js';
import { drawComponents } from './components.js';
import { ask, drawSimilarity, paint } from './likeness.js';
import { drawNorms, frameOutliers, histogram, strip } from './norms.js';
import { second, shared } from './second.js';
import { marking, outliers, roomOf, skipOf, small, tokensOf } from './tokens.js';

/** Draws the matrix of all heads, and the similarity of the heads of one layer. */
function drawHeads(self) {
  const { width, height } = roomOf(self);
  const [heads, alike] = unpacked(self.data.matrices);
  self.ui.heads.draw(heads, { width: self.width, height: self.tall - 60, most: 64 });
  self.ui.alike.draw(alike, { width, height: height - 80, most: 56 });
}

const FIGURES = {
  similarity: drawSimilarity,
  components: drawComponents,
  norms: drawNorms,
  heads: drawHeads,
};

export default () => ({
  title: 'Representations by depth',
  side: true,
  walled: true,
  caption: (self) => (self.settings.show === 'similarity' ? nameOf(self, self.settings.token) : ''),
  idle: (self) => (marking(self) ? [] : ['k']),
  reset: (self) => {
    self.held = false;
    self.facing = null;
    const cell = self.settings.token - skipOf(self); // a dropped patch has no token
    if (leftOut(self, cell)) self.settings.token = nearestShown(self, cell) + skipOf(self);
  },

  build(self) {
    self.held = false;
    self.facing = null;
    self.query = null;
    const drawn = map(self, {
      told: (cell) => this.told(self, cell),
      hover: (cell, event) => {
        if (self.facing === null && self.settings.show === 'similarity' && (!self.held || event.keyboard))
          ask(self, cell + skipOf(self));
      },
      leave: () => {
        if (self.settings.show === 'similarity') ask(self, self.settings.token);
      },
      pick: (cell) => {
        const token = cell + skipOf(self);
        self.held = !(self.held && self.settings.token === token && self.facing === null);
        self.facing = null;
        self.set('token', token);
      },
    });
    const marks = el('canvas', { class: 'vv-framed' });
    const facts = el('p', { class: 'vv-text' });
    drawn.plot.append(marks);
    const pinned = pinMarks(drawn.plot);
    const chips = el('div', { class: 'vv-buttons', role: 'group', 'aria-label': t('Prefix tokens') });
    const pins = div('vv-pins');
    const pin = button(t('Pin this token'), () => togglePin(self, self.settings.token), {
      'data-export': 'no',
    });
    drawn.node.append(facts, div('vv-row vv-asking', drawn.bar.node, div('vv-buttons', chips, pin)), pins);
    const heads = matrix(self, {
      key: (row, col) => headKey({ layer: col + 1, head: row + 1 }),
      pick: (_row, col) => self.set('depth', col + 1),
    });
    self.figure.append(stack(drawn.node, heads.node));
    const depths = strip(self);
    const single = div('vv-planes vv-singles');
    const counted = histogram(self);
    const largest = stack();
    const sinks = matrix(self, { pick: (_row, col) => self.set('depth', col + 1) });
    const photo = second(self, () => paint(self));
    const alike = matrix(self);
    self.below.append(stack(counted.node, largest, sinks.node, photo.node, single, depths.node, alike.node));
    const beside = { depths, single, counted, largest, sinks, alike, second: photo };
    return { drawn, marks, facts, pinned, chips, pins, pin, heads, ...beside };
  },

  pictures: (self) => (self.settings.show === 'heads' ? [] : ['upload']),
  items(self) {
    const { show } = self.settings;
    const marked = marking(self) && show !== 'norms' ? ['norms', 'usual'] : [];
    const cosines = small(self) ? ['cosines'] : ['line', 'pinned'];
    const photo = self.settings.other ? ['photo', small(self) ? 'across' : 'facing'] : [];
    if (show === 'similarity') return [...cosines, 'by_depth', ...photo, ...marked];
    const both = shared(self) ? ['photo', 'other_tints'] : [];
    if (show === 'components') return ['tints', 'components', 'shares', ...both, ...marked];
    return show === 'norms'
      ? ['norms', 'usual', 'largest', 'typical', 'received', 'matrices', 'chart']
      : ['matrices'];
  },

  draw(self) {
    const { ui } = self;
    const { show } = self.settings;
    const heads = show === 'heads';
    const shown = [
      [ui.drawn.node, !heads],
      [ui.heads.node, heads],
      [ui.counted.node, show === 'norms'],
      [ui.largest, show === 'norms'],
      [ui.sinks.node, show === 'norms'],
      [ui.single, show === 'components'],
      [ui.depths.node, !heads],
      [ui.alike.node, heads],
      [ui.chips, show === 'similarity' || show === 'norms'],
      [ui.pin, show === 'similarity'],
      [ui.pins, show === 'similarity'],
      [ui.second.node, show === 'similarity' || shared(self)],
    ];
    for (const [node, on] of shown) node.hidden = !on;
    self.query = self.settings.token;
    const { rows, cols, patch } = self.grid;
    if (self.room) self.tall = Math.min(self.tall, (self.width * rows * patch[0]) / (cols * patch[1]));
    FIGURES[show](self);
    if (!heads) frameOutliers(self);
    tell();
  },

  told(self, cell) {
    const { show, depth } = self.settings;
    if (show === 'similarity')
      return [self.held ? t('Click the outlined patch to release it') : t('Click to lock')];
    if (show !== 'norms') return [];
    const { median, mad, limit, values } = outliers(self);
    const from = mad ? (values[cell] - median) / mad : 0;
    const heads = self.data.received.shape[0];
    const count = tokensOf(self);
    const token = cell + skipOf(self);
    const shares = Array.from({ length: heads }, (_, h) => self.data.received.values[h * count + token]);
    return [
      t('median {sign} {times} MAD', { sign: from < 0 ? '−' : '+', times: number(Math.abs(from)) }) +
        (values[cell] > limit ? ` · ${t('above the limit')}` : ''),
      t('attention received in layer {layer}: {share} (uniform: {even})', {
        layer: Math.max(depth, 1),
        share: number(shares.reduce((a, b) => a + b, 0) / heads),
        even: number(1 / count),
      }),
    ];
  },
});
