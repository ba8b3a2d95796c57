// What stands beside the map of tokens: small maps of all depths, and the histogram of norms.

import { chartBeside } from '../../canvas/chart.js';
import { unpacked } from '../../canvas/data.js';
import { div, el, sheet, thumb } from '../../canvas/elements.js';
import { t } from '../../canvas/words.js';

/** How a depth is called: 0 enters block 1, every other is a block's output. */
const depthName = (depth) => (depth ? t('after block {block}', { block: depth }) : t('entering block 1'));

/** How many of `count` small maps stand in a row, so that all find room and none is wider than `most`. */
function across(count, width, height, aspect, most) {
  let n = Math.max(1, Math.ceil(width / most));
  while (n < count && Math.ceil(count / n) * ((width / n) * aspect + 22) > height) n += 1;
  return n;
}

/** A small map for every depth; `paint(depth, canvas)` draws one. */
export function strip(self) {
  const title = el('p', { class: 'vv-h' });
  const maps = el('div', { class: 'vv-depths', role: 'group', 'aria-label': t('Depth') });
  const node = div('vv-stack vv-tight', title, maps);
  function draw({ text, width, height, most = 150, paint }) {
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

/** The histogram of the patches' norms at one depth, with the limit, which can be drawn along. */
export function histogram(self) {
  const drawn = chartBeside(self);
  const said = el('p', { class: 'vv-text' });
  const node = div('vv-stack vv-tight vv-histogram', drawn.node, said);
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
