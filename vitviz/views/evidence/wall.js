// A wall: layers from left to right, heads from top to bottom, each a cell coloured by its number of logits.

import { headKey } from '../../canvas/lit.js';
import { matrix } from '../../canvas/matrix.js';
import { t } from '../../canvas/words.js';
import { signed } from './lines.js';

/** A wall whose heads are told by the number in their cell and handed to `pick`, layer and head from 1. */
export function wall(self, pick) {
  const at = (row, col) => ({ layer: col + 1, head: row + 1 });
  return matrix(self, {
    said: (row, col, value) => [
      signed(value),
      t('Layer {layer}, head {head}', at(row, col)),
      t('Click to see its patches'),
    ],
    pick: (row, col) => pick(col + 1, row + 1),
    key: (row, col) => headKey(at(row, col)),
  });
}

/** All heads as cells, coloured from -most to most; a number that is none leaves its cell empty. */
export function drawWall(self, made, { values, most, title, room, width, chosen = self.settings.chosen }) {
  const { layers, heads } = self.value;
  const [layer, head] = chosen.split('.').map(Number);
  const rows = Array.from({ length: heads }, (_, row) =>
    Array.from({ length: layers }, (_, col) => values[col * heads + row]),
  );
  const figure = {
    values: rows,
    scale: { colours: 'balance', low: -most, high: most, label: '' },
    along: t('layer'),
    down: t('head'),
    title,
    rows: [],
    cols: [],
    chosen: (head - 1) * layers + layer - 1,
    question: String(most),
    unscaled: true,
    notes: [],
  };
  const height = Math.min(room - 30, 40 * self.zoom * heads + 44 * self.zoom);
  made.draw(figure, { width, height, most: 54 * self.zoom });
}
