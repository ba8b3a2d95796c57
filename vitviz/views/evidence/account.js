// The account beside the map: a waterfall from the start to the logit, the wall of heads, and the answer
// forming.

import { tinted } from '../../canvas/colours.js';
import { el, fit } from '../../canvas/elements.js';
import { cells, outline } from '../../canvas/pointer.js';
import { tip } from '../../canvas/tip.js';
import { t } from '../../canvas/words.js';
import { signed } from './lines.js';

/**
 * The parts of the account; `pick(layer, head)` is told of a head, or of a layer with head null, both from 1.
 */
export function account(self, { pick }) {
  const title = el('p', { class: 'vv-h' });
  const chart = el('canvas', { role: 'img' });
  const said = el('p', { class: 'vv-text' });
  const wall = el('canvas');
  const plot = el('div', { class: 'vv-plot' }, wall);
  const spot = outline(plot);
  const now = outline(plot, 'vv-pinned');
  const wallTitle = el('p', { class: 'vv-h' });
  const legend = el('p', { class: 'vv-legends' });
  const node = el(
    'div',
    { class: 'vv-stack' },
    title,
    el('div', { class: 'vv-plot' }, chart),
    said,
    legend,
    wallTitle,
    plot,
  );
  const made = { node, title, chart, said, wall, plot, spot, now, wallTitle, legend, place: null };
  const at = (cell) => ({
    layer: (cell % self.value.layers) + 1,
    head: Math.floor(cell / self.value.layers) + 1,
  });
  const name = (cell) => t('Layer {layer}, head {head}', at(cell));
  const share = (cell) => self.data.heads.values[(at(cell).layer - 1) * self.value.heads + at(cell).head - 1];
  cells(self, wall, {
    place: () => made.place,
    label: () => t('The share of every head.'),
    name: (cell) => `${name(cell)}: ${signed(share(cell))}`,
    hover(cell, event) {
      spot.put(...made.place.box(cell));
      tip.show(event, signed(share(cell)), name(cell), t('Click to see its patches'));
    },
    leave: () => spot.hide(),
    pick: (cell) => pick(at(cell).layer, at(cell).head),
  });
  return made;
}

/** All heads as cells, coloured by their share. */
export function drawWall(self, made, some, room, width) {
  const { layers, heads } = self.value;
  const size = self.zoom;
  const left = 64 * size;
  const top = 22 * size;
  const values = new Float32Array(layers * heads);
  for (let l = 0; l < layers; l++)
    for (let h = 0; h < heads; h++) values[h * layers + l] = self.data.heads.values[l * heads + h];
  const most = values.reduce((found, value) => Math.max(found, Math.abs(value)), 0) || 1;
  const pitch = Math.max(8, Math.min(54 * size, (width - left) / layers));
  const down = Math.max(8, Math.min(pitch, 40 * size, (room - 70 * size) / heads));
  const context = fit(made.wall, left + layers * pitch, top + heads * down, self.density);
  const [layer, head] = self.settings.chosen ? self.settings.chosen.split('.').map(Number) : [];
  context.imageSmoothingEnabled = false;
  context.drawImage(
    tinted(values, heads, layers, 'balance', -most, most),
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
  made.plot.hidden = made.wallTitle.hidden = false;
  made.wallTitle.textContent = some
    ? t('What the chosen patches gave through every head, up to {most}', { most: signed(most) })
    : t('The share of every head, up to {most}', { most: signed(most) });
  if (layer)
    made.now.put(
      left + (layer - 1) * pitch,
      top + (head ? head - 1 : 0) * down,
      pitch,
      head ? down : heads * down,
    );
  else made.now.hide();
}
