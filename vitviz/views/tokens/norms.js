// Norms of the tokens: map, histogram with the limit, largest activations, attention sinks; and the small
// maps of all depths, which the other panels show too.

import { tinted } from '../../frontend/colours.js';
import { unpacked } from '../../frontend/data.js';
import { div, el, sheet, stack, thumb } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { bounds, number } from '../../frontend/numbers.js';
import { frames } from '../../frontend/outliers.js';
import { chartBeside } from '../../frontend/plotly_chart.js';
import { rowByRow } from '../../frontend/pointer.js';
import { still } from '../../frontend/shared_scale.js';
import { showChips } from './likeness.js';
import { marking, outliers, roomOf, shortOf, sizeOf, skipOf, tokensOf, where } from './tokens.js';

/** The name of a depth: 0 is the input of layer 1, every other depth a layer's output. */
const depthName = (depth) => (depth ? t('after layer {layer}', { layer: depth }) : t('entering layer 1'));

/** Number of the `count` small maps per row, so that all fit and none is wider than `most`. */
function across(count, width, height, aspect, most) {
  let n = Math.max(1, Math.ceil(width / most));
  while (n < count && Math.ceil(count / n) * ((width / n) * aspect + 22) > height) n += 1;
  return n;
}

/** A small map for every depth; `paint(depth, canvas)` draws one. */
export function strip(self) {
  const title = el('p', { class: 'vv-h' });
  const maps = el('div', { class: 'vv-depths', role: 'group', 'aria-label': t('Depth') });
  const node = stack(title, maps);
  function draw({ text, width, height, most = 240, paint }) {
    const count = self.value.layers + 1;
    const { rows, cols, patch } = self.grid;
    const aspect = (rows * patch[0]) / (cols * patch[1]);
    if (maps.childElementCount !== count) {
      maps.replaceChildren(
        ...Array.from({ length: count }, (_, depth) => {
          const canvas = sheet(cols, rows);
          const label = `${t('Depth')} ${depth}, ${depthName(depth)}`;
          return thumb(canvas, String(depth), () => self.set('depth', depth), {
            'aria-label': label,
            title: label,
          });
        }),
      );
    }
    const n = across(count, width, height, aspect, most);
    maps.style.gridTemplateColumns = `repeat(${n}, minmax(0, ${most}px))`;
    [...maps.children].forEach((button, depth) => {
      paint(depth, button.firstChild);
      button.setAttribute('aria-pressed', String(depth === self.settings.depth));
    });
    title.textContent = text;
  }
  return { node, draw };
}

/** The histogram of the patches' norms at one depth, with the limit, which can be dragged. */
export function histogram(self) {
  const drawn = chartBeside(self, { zooms: false });
  const said = el('p', { class: 'vv-text' });
  const node = div('vv-stack vv-histogram', drawn.node, said);
  /** @type {{median: number, mad: number} | null} */
  let now = null;
  let dragged = false;
  const moved = (event) => {
    if (!dragged || !now?.mad) return;
    const control = self.control('k');
    const k = Math.round((drawn.at(event) - now.median) / now.mad / control.step) * control.step;
    self.set('k', Math.max(control.minimum, Math.min(control.maximum, k)));
  };
  drawn.plot.addEventListener('pointerdown', (event) => {
    dragged = true;
    drawn.plot.setPointerCapture(event.pointerId);
    moved(event);
  });
  drawn.plot.addEventListener('pointermove', moved);
  for (const ends of ['pointerup', 'pointercancel'])
    drawn.plot.addEventListener(ends, () => (dragged = false));

  function draw({ median, mad, limit, facts, width, height }) {
    now = { median, mad };
    const figure = unpacked(self.data.chart);
    figure.title = t('Norms of the patches; drag the limit');
    figure.levels.unshift({ value: limit, upright: true, name: '', colour: '#c46a16' });
    figure.bars.colours = figure.bars.x.map((at) => (at > limit ? '#c46a16' : '#2f7fc0'));
    drawn.draw(figure, width, height);
    said.textContent = facts;
  }
  return { node, draw };
}

export function drawNorms(self) {
  const { ui, grid, data, settings } = self;
  const { rows, cols } = grid;
  const count = tokensOf(self);
  const { depth } = settings;
  const { width, height } = roomOf(self);
  const { median, mad, limit, all, values, cells: above } = outliers(self);
  const [least, greatest] = bounds(values.filter(Number.isFinite));
  const [low, high] = still(self, `norms/${depth}`, Math.min(least, median), greatest);
  ui.drawn.show({
    values,
    low,
    high,
    colours: 'magma',
    label: t('Norm of the token'),
    title: `${t('Norms')} · ${where(self)}`,
    held: -1,
  });
  ui.facts.hidden = true;
  showChips(self, '');
  grid.prefix.forEach((_, i) => {
    ui.chips.children[i].lastChild.textContent = number(all[i]);
    ui.chips.children[i].classList.toggle('vv-beyond', all[i] > limit);
    ui.chips.children[i].removeAttribute('aria-pressed');
  });
  const facts = t('Median {median}, MAD {mad}; above the limit of {limit}: {count} of {all} patches.', {
    median: number(median),
    mad: number(mad),
    limit: number(limit),
    count: above.length,
    all: values.filter(Number.isFinite).length,
  });
  const tall = Math.max(120, Math.min(180, height * 0.22));
  ui.counted.draw({ median, mad, limit, facts, width, height: tall });
  const [numbers, typical] = [data.largest.values, data.typical.values[depth]];
  const ranks = data.largest.shape[1];
  const one = (_, rank) => {
    const start = 3 * (depth * ranks + rank);
    const [value, token, channel] = numbers.subarray(start, start + 3);
    const told = { value: number(value), channel, token: shortOf(self, token) };
    return t('{value} in channel {channel} of {token}', told);
  };
  const title = t('Largest activations (median {typical})', { typical: number(typical) });
  const text = Array.from({ length: ranks }, one).join(' · ');
  ui.largest.replaceChildren(el('p', { class: 'vv-h', text: title }), el('p', { class: 'vv-text', text }));
  const [sinks] = unpacked(data.matrices);
  const [, most] = still(self, 'sinks', 0, sinks.scale.high);
  const said = t('Sinks: attention on one token, up to {most} %', { most: (100 * most).toFixed(0) });
  const titled = { ...sinks, title: said, unscaled: true }; // no space for a scale
  ui.sinks.draw(titled, { width, height: height * 0.3, most: 34 });
  const used = ui.counted.node.offsetHeight + ui.sinks.node.offsetHeight + ui.largest.offsetHeight + 36;
  const left = height - used - 30;
  ui.depths.node.hidden = left < 60;
  if (left >= 60)
    ui.depths.draw({
      text: t('Every depth, each on its own scale'),
      width,
      height: left,
      most: 96,
      paint: (at, canvas) => {
        const start = at * count + skipOf(self);
        const part = data.norms.values.subarray(start, start + sizeOf(self));
        const [least, greatest] = bounds(part);
        tinted(part, rows, cols, 'magma', least, greatest, 0, canvas);
      },
    });
}

export function frameOutliers(self) {
  const { marks, drawn } = self.ui;
  const size = drawn.size();
  marks.hidden = !marking(self);
  if (!marks.hidden) frames(self, marks, size, outliers(self).cells, rowByRow(self.grid, size));
}
