// All maps side by side on one scale: the order in which each removes the patches, or the maps' values.

import { tinted } from '../../frontend/colours.js';
import { div, el, stack, thumb } from '../../frontend/elements.js';
import { lighting } from '../../frontend/highlight.js';
import { patchName, placeName, t } from '../../frontend/i18n.js';
import { number } from '../../frontend/numbers.js';
import { plotted, tip } from '../../frontend/pointer.js';

/** Ranks in [0, 1]: the fraction of other values that are smaller; ties get their mean rank. */
function ranksOf(values) {
  const order = values.map((value, i) => [value, i]).sort((a, b) => a[0] - b[0]);
  const found = new Float32Array(values.length);
  for (let i = 0; i < order.length; ) {
    let end = i;
    while (end < order.length && order[end][0] === order[i][0]) end += 1;
    for (let j = i; j < end; j++) found[order[j][1]] = (i + end - 1) / 2 / Math.max(1, order.length - 1);
    i = end;
  }
  return found;
}

/** Maximum of the scale shared by all maps in logits. */
export const largest = (names, of) =>
  Math.max(
    0,
    ...names.filter((name) => of(name).logits).map((name) => Math.max(...of(name).map.map(Math.abs))),
  ) || 1;

/** Draws one method's map, one pixel per patch: ranks or values. */
export function drawMap(self, canvas, one, shared) {
  const { rows, cols } = self.grid;
  const most = one.logits ? shared : Math.max(...one.map.map(Math.abs)) || 1;
  const [values, map, low, high] =
    self.settings.scale === 'ranks'
      ? [ranksOf(one.map), 'viridis', 0, 1]
      : [one.map, one.signed ? 'balance' : 'viridis', one.signed ? -most : 0, most];
  tinted(values, rows, cols, map, low, high, 0, canvas);
}

/** Thumbnails of all maps; the hovered patch is marked in all of them. */
export function maps(self, { title, pick, of }) {
  const wall = div('vv-trial-maps');
  const said = el('p', { class: 'vv-text' });
  const node = stack(wall, said);
  const thumbs = new Map();

  function made(name) {
    const { canvas, plot, spot: mark } = plotted();
    const node = thumb(plot, title(name), () => pick(name), lighting(name));
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      const { rows, cols } = self.grid;
      const col = Math.floor(((event.clientX - box.left) / box.width) * cols);
      const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
      return row >= 0 && col >= 0 && row < rows && col < cols ? row * cols + col : -1;
    };
    canvas.addEventListener('pointermove', (event) => point(name, at(event), event));
    canvas.addEventListener('pointerleave', () => point(name, -1));
    return { canvas, mark, node };
  }

  function point(name, cell, event) {
    for (const { canvas, mark } of thumbs.values())
      mark.over({ ...self.grid, width: canvas.clientWidth, height: canvas.clientHeight }, cell);
    if (cell < 0) return tip.hide();
    const { map } = of(name);
    const above = map.filter((value) => value > map[cell]).length + 1;
    tip.show(
      event,
      number(map[cell]),
      title(name),
      `${patchName(cell)}, ${placeName(self.grid, cell)}`,
      t('rank {place} of {count}', { place: above, count: map.length }),
    );
  }

  function draw(names) {
    const shared = largest(names, of);
    if ([...thumbs.keys()].join() !== names.join()) {
      for (const name of names) if (!thumbs.has(name)) thumbs.set(name, made(name));
      for (const name of thumbs.keys()) if (!names.includes(name)) thumbs.delete(name);
      wall.replaceChildren(...names.map((name) => thumbs.get(name).node));
    }
    for (const name of names) {
      const one = of(name);
      const { canvas, node } = thumbs.get(name);
      drawMap(self, canvas, one, shared);
      node.setAttribute('aria-pressed', String(self.settings.method === name));
      node.lastChild.textContent = one.nothing
        ? `${title(name)}: ${t('No positive values here.')}`
        : title(name);
    }
    said.textContent =
      self.settings.scale === 'ranks'
        ? t('All maps share one scale: bright patches are removed first, dark patches last.')
        : t(
            'Orange raises the score, blue lowers it. Logit maps end at {most}, ' +
              'other maps at their own maximum.',
            { most: number(shared) },
          );
  }

  return { node, draw };
}
