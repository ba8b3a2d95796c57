// Frames patches with unusually long tokens: in Representations and, if requested there, over the maps of all
// views, which then fetch the norms.

import { array } from './data.js';
import { el, fit } from './elements.js';
import { t } from './i18n.js';
import { frameMissing, rim } from './removed_patches.js';
import { memory } from './view_state.js';

/** Median and MAD of the norms at a depth, the limit, and the patches above it. */
export function above({ norms, usual }, { depth, k }, skip) {
  const count = norms.shape[1];
  const [median, mad] = usual.values.subarray(2 * depth, 2 * depth + 2);
  const limit = median + k * mad;
  const all = norms.values.subarray(depth * count, (depth + 1) * count);
  const values = all.subarray(skip);
  const cells = Array.from(values.keys()).filter((cell) => values[cell] > limit);
  return { median, mad, limit, all, values, cells };
}

/** Draws frames; `box(cell)` is a patch's x, y, width and height on the canvas. */
export function frames(self, sheet, { width, height }, cells, box) {
  const context = fit(sheet, width, height, self.density);
  for (const [line, colour] of [
    [4, 'rgb(0 0 0 / .8)'],
    [2, self.colour('--vv-orange')],
  ])
    for (const cell of cells) rim(context, box(cell), colour, line, 2);
}

/** Depth and limit set in Representations for marking in every view; null if off. */
function asked(self) {
  const { mark, depth, k } = memory.tokens ?? {};
  if (mark !== 'all') return null;
  const last = self.value.layers;
  return { depth: Math.min(Number(depth ?? last), last), k: Number(k ?? 5) };
}

const drawn = new Set(); // redraws the frames of each mounted view
let told = '';

/** Redraws the other views' frames if the marking has changed. */
export function tell() {
  const { mark, depth, k } = memory.tokens ?? {};
  const now = JSON.stringify(mark === 'all' && [depth, k]);
  if (now === told) return;
  told = now;
  for (const one of drawn) one.again();
}

/** Frames over the plot of another view; `node` describes them. Call `draw` whenever the plot is drawn. */
export function framing(self, plot) {
  const sheet = el('canvas', { class: 'vv-framed', hidden: true });
  const node = el('p', { class: 'vv-text vv-framed-said', hidden: true });
  plot.append(sheet);
  /** @type {{goal: string} | null} */
  let last = null;
  const one = { again: () => {} };
  drawn.add(one);

  async function draw(size, box) {
    const missing = Boolean(self.value.missing?.patches.length);
    if (missing) frameMissing(self, fit(sheet, size.width, size.height, self.density), box);
    one.again = () => (sheet.isConnected ? draw(size, box) : drawn.delete(one));
    const what = asked(self);
    const now = { goal: JSON.stringify([self.key, what]) };
    node.hidden = !what || last?.goal !== now.goal;
    sheet.hidden = node.hidden && !missing;
    last = now;
    if (!what) return;
    const names = ['norms', 'usual'];
    const found = await Promise.all(names.map((one) => array(`${self.key}/tokens/${one}`))).catch(() => null);
    if (!found || last !== now) return; // the image or the marking has changed meanwhile
    const [norms, usual] = found;
    const { cells } = above({ norms, usual }, what, self.grid.prefix.length);
    frames(self, sheet, size, cells, box);
    if (missing) frameMissing(self, sheet.getContext('2d'), box);
    sheet.hidden = node.hidden = false;
    node.textContent = t('Framed: patches above the limit in Representations, depth {depth}: {count}', {
      count: cells.length,
      depth: what.depth,
    });
  }
  return { node, draw };
}
