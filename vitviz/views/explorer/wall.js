// Grid of the explorer: all layers and heads as thumbnails for one query, with the mean of the heads last.
// Layers are columns or rows, whichever gives larger thumbnails.

import { tinted } from '../../frontend/colours.js';
import { fit } from '../../frontend/elements.js';
import { nameOf, t } from '../../frontend/i18n.js';
import { frameRemoved, removedHeads } from '../../frontend/removed_patches.js';
import { differs, labelled, reach, still } from '../../frontend/shared_scale.js';
import { coloursOf } from './query.js';
import { distanceOf } from './tokens.js';

/**
 * All maps as one image with one number per patch: a row of maps per layer, a column per head, the mean of
 * the heads last. Each map is relative to its own largest weight, or to the largest of all if the scale is
 * shared.
 */
export function levelsOf(self) {
  const {
    data,
    grid: { rows, cols },
    settings,
    value: { layers, heads },
  } = self;
  const change = differs(self); // a difference has values from -1 to 1, else 0 to 1
  const size = rows * cols;
  const peaks = data.wallmax.values;
  const shared = Math.max(...peaks) || 1;
  const absolute = settings.scale === 'shared';
  const levels = new Float32Array(layers * rows * (heads + 1) * cols);
  const line = (heads + 1) * cols;
  for (let l = 0; l < layers; l++) {
    const mean = new Float32Array(size);
    for (let h = 0; h <= heads; h++) {
      const at = (l * heads + h) * size;
      const peak = h < heads ? peaks[l * heads + h] : reach(mean);
      const factor = (absolute ? peak / shared : 1) * (h < heads ? 1 : 1 / (peak || 1));
      for (let i = 0; i < size; i++) {
        const byte = h < heads ? data.wall.values[at + i] / 255 : 0;
        const raw = h === heads ? mean[i] : change ? 2 * byte - 1 : byte;
        if (h < heads) mean[i] += raw * (peak / heads);
        levels[(l * rows + Math.floor(i / cols)) * line + h * cols + (i % cols)] = raw * factor;
      }
    }
  }
  return levels;
}

export function drawWall(self) {
  const { ui, data, grid, settings } = self;
  const { layers, heads } = self.value;
  const { rows, cols } = grid;
  const asked = [settings.token, settings.direction, differs(self)].join('/');
  self.absolute = still(self, `wall/${asked}`, 0, Math.max(...data.wallmax.values) || 1)[1];
  const absolute = settings.scale === 'shared';
  const name = [self.key, asked, settings.scale, settings.colormap, self.absolute].join('/');
  if (ui.wallName !== name) {
    // all maps in one image, a pixel per patch; the mean of the heads last
    const line = (heads + 1) * cols;
    const lowest = differs(self) ? -1 : 0;
    [ui.wallName, ui.atlas] = [name, tinted(levelsOf(self), layers * rows, line, coloursOf(self), lowest, 1)];
  }
  ui.order = Array.from({ length: layers }, (_, l) => {
    const order = Array.from({ length: heads }, (_, h) => h);
    return settings.order === 'distance'
      ? order.sort((a, b) => distanceOf(self, l, a) - distanceOf(self, l, b))
      : order;
  });
  const left = 64 * self.zoom;
  const top = 24 * self.zoom;
  const gap = 3;
  const room = self.across - left;
  const aspect = (rows * grid.patch[0]) / (cols * grid.patch[1]);
  const shell = () => getComputedStyle(self.below).getPropertyValue('--vv-shell').trim() === '1';
  const bounded = self.read('bounded', shell);
  ui.wallTitle.textContent = `${t('All layers and heads')} · ${nameOf(self, settings.token)}`;
  // Besides the grid: the opening, the scale, and title and facts at their longest, so that no query resizes
  // the grid.
  const em = self.read('letter', () => parseFloat(getComputedStyle(ui.facts).fontSize));
  const texts = Math.ceil((29 * em) / self.across) + Math.ceil((66 * em) / self.across); // lines
  const others = ui.opening.node.offsetHeight + (4.4 + 1.6 * texts) * em + 48;
  const tall = bounded ? self.deep - others - top : Infinity;
  const apart = 8; // px between the last head and the mean
  const across = Math.min(room / layers, (tall - apart) / (heads + 1) / aspect);
  const along = bounded ? Math.min((room - apart) / (heads + 1), tall / layers / aspect) : 0;
  const upright = along > across; // a row per layer
  const pitch = Math.max(9, Math.min(bounded ? 150 : 72, Math.max(across, along)));
  const tw = pitch - gap;
  const th = tw * aspect;
  const down = th + gap;
  /** @type {(place: number, layer: number) => [number, number, number, number]} */
  const slot = (place, layer) => {
    const [col, row] = upright ? [place, layer] : [layer, place];
    const set = place === heads ? apart : 0;
    return [left + col * pitch + (upright ? set : 0), top + row * down + (upright ? 0 : set), tw, th];
  };
  const removed = removedHeads(self).map(({ layer, head }) =>
    slot(ui.order[layer - 1].indexOf(head - 1), layer - 1),
  );
  const [columns, lines] = upright ? [heads + 1, layers] : [layers, heads + 1];
  const size = {
    width: columns * pitch + (upright ? apart : 0),
    height: lines * down + (upright ? 0 : apart),
  };
  const drawn = [ui.wallName, upright, pitch, self.density, settings.order, self.colour('color')].join('/');
  if (ui.wallDrawn !== drawn) {
    ui.wallDrawn = drawn;
    const context = fit(ui.wall, left + size.width, top + size.height, self.density);
    context.imageSmoothingEnabled = tw * self.density < cols;
    for (let l = 0; l < layers; l++)
      for (let p = 0; p <= heads; p++) {
        const head = p < heads ? ui.order[l][p] : heads;
        context.drawImage(ui.atlas, head * cols, l * rows, cols, rows, ...slot(p, l));
      }
    frameRemoved(context, removed);
    context.fillStyle = self.colour('color');
    context.font = `${12 * self.zoom}px ${self.colour('font-family')}`;
    context.globalAlpha = 0.8;
    context.textBaseline = 'middle';
    // names of columns above, of rows on the left; too close ones are left out
    const name = (text, place, layer, column) => {
      const [x, y] = slot(place, layer);
      context.textAlign = column ? 'center' : 'right';
      context.fillText(text, column ? x + tw / 2 : left - 8, column ? top / 2 : y + th / 2);
    };
    const step = (column) => Math.ceil((column ? 18 * self.zoom : 14 * self.zoom) / (column ? pitch : down));
    for (let l = 0; l < layers; l += step(!upright))
      name(upright && l === 0 ? t('layer {layer}', { layer: 1 }) : String(l + 1), 0, l, !upright);
    if (settings.order === 'distance') {
      name(t('near'), 0, 0, upright);
      if (heads > 1) name(t('far'), heads - 1, 0, upright);
    } else {
      for (let h = 0; h < heads; h += step(upright))
        name(!upright && h === 0 ? t('head {head}', { head: 1 }) : String(h + 1), h, 0, upright);
    }
    name(t('mean'), heads, 0, upright);
    context.textAlign = 'right';
    context.fillText(upright ? t('head') : t('layer'), left - 8, top / 2);
  }
  /** The layer of a cell and its place among the heads, of which the mean is the last. */
  const at = (cell) => {
    const [row, col] = [Math.floor(cell / columns), cell % columns];
    return upright ? { layer: row, place: col } : { layer: col, place: row };
  };
  ui.wallPlace = { rows: lines, cols: columns, x: left, y: top, ...size, slot, at };
  const place = settings.show === 'mean' ? heads : ui.order[settings.layer - 1].indexOf(settings.head - 1);
  settings.show === 'rollout' ? ui.now.hide() : ui.now.put(...slot(place, settings.layer - 1));
  const said = absolute
    ? t('Attention weight, one scale for all')
    : t('Weight relative to each map’s maximum');
  const high = absolute ? self.absolute : 1;
  ui.wallBar.update(coloursOf(self), differs(self) ? -high : 0, high, labelled(self, said));
}
