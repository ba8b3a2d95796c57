// The panel beside the map: a grid of all heads, layers from left to right, heads from top to bottom, each
// cell coloured by its contribution in logits; the ablation of the selected head; a chart (waterfall or logit
// lens).

import { unpacked } from '../../frontend/data.js';
import { el, stack } from '../../frontend/elements.js';
import { headKey } from '../../frontend/highlight.js';
import { t } from '../../frontend/i18n.js';
import { matrix } from '../../frontend/matrix.js';
import { ablated, removedHeads } from '../../frontend/removed_patches.js';
import { differs, still } from '../../frontend/shared_scale.js';
import { chartBeside } from '../../frontend/svg_chart.js'; // Plotly lays out the page 44 times a camera frame
import { change } from './change.js';
import { asked, either, roomBeside, signed } from './lines.js';

/** A grid of heads: the tooltip shows a cell's number; `pick` gets layer and head, counted from 1. */
export function wall(self, pick) {
  const at = (row, col) => ({ layer: col + 1, head: row + 1 });
  return matrix(self, {
    said: (row, col, value) => [
      signed(value),
      t('Layer {layer}, head {head}', at(row, col)),
      ...(ablated(self, at(row, col)) ? [t('Ablated')] : []),
      t('Click to see its patches'),
    ],
    pick: (row, col) => pick(col + 1, row + 1),
    key: (row, col) => headKey(at(row, col)),
  });
}

/** Draws all heads as cells, coloured from -most to most; NaN leaves a cell empty. */
export function drawWall(self, made, { values, most, title, room, width, chosen = self.settings.chosen }) {
  const { layers, heads } = self.value;
  const [layer, head] = chosen.split('.').map(Number);
  const rows = Array.from({ length: heads }, (_, row) =>
    Array.from({ length: layers }, (_, col) => values[col * heads + row]),
  );
  const figure = {
    values: rows,
    scale: { colours: 'balance', low: -most, high: most, label: '' },
    x_label: t('layer'),
    y_label: t('head'),
    title,
    rows: [],
    cols: [],
    chosen: (head - 1) * layers + layer - 1,
    removed: removedHeads(self).map((one) => (one.head - 1) * layers + one.layer - 1),
    question: String(most),
    unscaled: true,
    notes: [],
  };
  const height = Math.min(room - 30, 40 * self.zoom * heads + 44 * self.zoom);
  made.draw(figure, { width, height, most: 54 * self.zoom });
}

/** The elements of the panel; `pick(layer, head)` gets the clicked head, both counted from 1. */
export function account(self, { pick }) {
  const drawn = chartBeside(self);
  const said = el('p', { class: 'vv-text' });
  const shares = wall(self, pick);
  const changed = change(self);
  const node = stack(shares.node, changed.node, drawn.node, said);
  node.classList.add('vv-contributions');
  return { node, drawn, said, shares, changed };
}

/** Draws the chart, `tall` px high, with a sentence below; `at` is the current depth. */
export function drawChart(self, made, tall, said, at = null) {
  made.drawn.node.hidden = false;
  const figure = unpacked(self.data.chart);
  if (at !== null) figure.levels.push({ value: at, upright: true, name: '', colour: '#7d838e' });
  made.drawn.draw(figure, Math.max(160, self.across), tall);
  made.said.textContent = said;
}

/** Draws the waterfall and the grid. Selected patches change only the grid, so that nothing moves. */
export function drawAccount(self, made) {
  const room = roomBeside(self, 480);
  const share = self.ui.head.hidden ? 0.24 : 0.32;
  const tall = Math.max(130 * self.zoom, Math.min(260 * self.zoom, room * share));
  const direct = differs(self)
    ? t('Change per term at the earlier LayerNorm scale; the scale’s own effect is “norm”.')
    : t('Direct effects only: what acts through later layers is credited to those layers.');
  drawChart(self, made, tall, direct);
  const above = () =>
    made.drawn.node.offsetHeight + made.said.offsetHeight + made.changed.node.offsetHeight + 8;
  const used = self.read('account', above) + 20 + 20 * self.zoom;
  const least = (74 + Math.max(84, 16 * self.value.heads)) * self.zoom; // what is lower is scrolled to
  const [some, width] = [self.settings.patches !== '', Math.max(160, self.across)];
  drawShares(self, made, { values: self.data.heads.values, some, room: Math.max(room - used, least), width });
}

/** Draws the largest paths; the graph also uses the space of the grid. */
export function drawGraph(self, made) {
  const room = roomBeside(self, 560);
  made.shares.node.hidden = true;
  drawChart(self, made, Math.max(220 * self.zoom, Math.min(560 * self.zoom, room - 200 * self.zoom)), '');
}

/** The largest absolute value so far in this video, ignoring NaN; keeps the grids' scales constant. */
export function largest(self, name, ...lists) {
  const most = lists
    .flatMap((list) => Array.from(list))
    .reduce((found, value) => (Number.isNaN(value) ? found : Math.max(found, Math.abs(value))), 0);
  return still(self, `${name}/${asked(self)}`, 0, most)[1] || 1;
}

/**
 * Draws the direct contribution of every head, or the selected patches' contribution through each head.
 * @param {any} self @param {any} made
 * @param {{values: any, room: number, width: number, some?: boolean, most?: number}} options
 */
export function drawShares(self, made, { values, room, width, some = false, most }) {
  const end = most ?? largest(self, some ? 'wall/patches' : 'wall', values);
  const told = { most: either(end) };
  const title = some
    ? t('From the selected patches, colour scale {most}', told)
    : t('Contribution of every head, colour scale {most}', told);
  made.shares.node.hidden = false;
  drawWall(self, made.shares, { values, most: end, title, room, width });
}
