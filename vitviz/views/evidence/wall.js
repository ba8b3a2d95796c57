// A wall: layers from left to right, heads from top to bottom, each a cell coloured by its number of logits.

import { tinted } from '../../canvas/colours.js';
import { el, fit } from '../../canvas/elements.js';
import { cells, outline } from '../../canvas/pointer.js';
import { tip } from '../../canvas/tip.js';
import { t } from '../../canvas/words.js';
import { signed } from './lines.js';

/**
 * A wall that tells `value(index)` of a head, index = layer · heads + head from 0, and `pick`s it, both
 * from 1.
 */
export function wall(self, { pick, value, label }) {
  const title = el('p', { class: 'vv-h' });
  const canvas = el('canvas');
  const plot = el('div', { class: 'vv-plot' }, canvas);
  const spot = outline(plot);
  const now = outline(plot, 'vv-pinned');
  const made = { title, canvas, plot, now, place: null };
  const at = (cell) => ({
    layer: (cell % self.value.layers) + 1,
    head: Math.floor(cell / self.value.layers) + 1,
  });
  const name = (cell) => t('Layer {layer}, head {head}', at(cell));
  const told = (cell) => signed(value((at(cell).layer - 1) * self.value.heads + at(cell).head - 1));
  cells(self, canvas, {
    place: () => made.place,
    label,
    name: (cell) => `${name(cell)}: ${told(cell)}`,
    hover(cell, event) {
      spot.put(...made.place.box(cell));
      tip.show(event, told(cell), name(cell), t('Click to see its patches'));
    },
    leave: () => spot.hide(),
    pick: (cell) => pick(at(cell).layer, at(cell).head),
  });
  return made;
}

/** All heads as cells, coloured from -most to most; a number that is none leaves its cell empty. */
export function drawWall(self, made, { values, most, title, room, width }) {
  const { layers, heads } = self.value;
  const size = self.zoom;
  const left = 64 * size;
  const top = 22 * size;
  const across = new Float32Array(layers * heads);
  for (let l = 0; l < layers; l++)
    for (let h = 0; h < heads; h++) across[h * layers + l] = values[l * heads + h];
  const pitch = Math.max(8, Math.min(54 * size, (width - left) / layers));
  const down = Math.max(8, Math.min(pitch, 40 * size, (room - 70 * size) / heads));
  const context = fit(made.canvas, left + layers * pitch, top + heads * down, self.density);
  const [layer, head] = self.settings.chosen ? self.settings.chosen.split('.').map(Number) : [];
  context.imageSmoothingEnabled = false;
  context.drawImage(
    tinted(across, heads, layers, 'balance', -most, most),
    left,
    top,
    layers * pitch,
    heads * down,
  );
  context.fillStyle = self.colour('color');
  context.font = `${12 * self.zoom}px ${self.colour('font-family')}`;
  context.textBaseline = 'middle';
  context.textAlign = 'center';
  for (let l = 0; l < layers; l += Math.ceil((18 * size) / pitch))
    context.fillText(String(l + 1), left + (l + 0.5) * pitch, top / 2);
  context.textAlign = 'right';
  context.fillText(t('layer'), left - 8, top / 2);
  for (let h = 0; h < heads; h += Math.ceil((14 * size) / down))
    context.fillText(h ? String(h + 1) : t('head {head}', { head: 1 }), left - 8, top + (h + 0.5) * down);
  const box = (cell) => [left + (cell % layers) * pitch, top + Math.floor(cell / layers) * down, pitch, down];
  made.place = {
    rows: heads,
    cols: layers,
    x: left,
    y: top,
    width: layers * pitch,
    height: heads * down,
    box,
  };
  made.title.textContent = title;
  shown(made, true);
  if (layer)
    made.now.put(
      left + (layer - 1) * pitch,
      top + (head ? head - 1 : 0) * down,
      pitch,
      head ? down : heads * down,
    );
  else made.now.hide();
}

/** Shows a wall, or takes it out of view. */
export function shown(made, visible) {
  made.plot.hidden = made.title.hidden = !visible;
}
