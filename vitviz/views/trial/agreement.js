// How alike the maps are: rank correlations of every two methods, and of one method's maps of two classes.

import { el } from '../../canvas/elements.js';
import { matrix } from '../../canvas/matrix.js';
import { fixed } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';

/** A field of cells, a row a method: a column for each method, and apart one for the other class. */
export function agreement(self, { title }) {
  const said = el('p', { class: 'vv-text' });
  let now = { names: [], other: '' };
  const drawn = matrix(self, {
    told: (row, col, value) => {
      const count = now.names.length;
      if (col === count) return []; // between both
      const beside = col < count ? title(now.names[col]) : t('the same of {class}', { class: now.other });
      return [Number.isFinite(value) ? fixed(value, 2) : '–', title(now.names[row]), beside];
    },
  });
  drawn.node.append(said);

  function draw(names, { verdict, alike }) {
    const count = names.length;
    const value = (row, col) => (col > count ? alike?.found[names[row]] : verdict?.agreement[row][col]);
    const cols = count + 2;
    now = { names, other: alike ? self.ui.nameOf(String(alike.classes[1])) : '' };
    drawn.draw({
      values: Float32Array.from(
        { length: count * cols },
        (_, i) => value(Math.floor(i / cols), i % cols) ?? NaN,
      ),
      rows: count,
      cols,
      width: Math.max(260, self.below.clientWidth) - 4,
      height: Infinity,
      most: 30 * self.zoom,
      ends: [-1, 1],
      colours: 'balance',
      across: '',
      down: '',
      names: { rows: names.map(title), cols: [...names.map((_, i) => String(i + 1)), '', ''] },
      text: t('Rank correlations of the maps.'),
      label: '',
      col: -1,
    });
    said.textContent = verdict
      ? [
          t('Spearman’s rank correlation, −1 blue to 1 orange; in the same order across and down.'),
          t('Last column: a method’s maps of this class and of {class}; 1 means that it knows no class.', {
            class: now.other || '…',
          }),
        ].join(' ')
      : t('The ranking comes when all methods are tried.');
  }

  return { node: drawn.node, draw };
}
