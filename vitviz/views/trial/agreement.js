// How alike the maps are: rank correlations of every two methods, and of one method's maps of two classes.

import { tinted } from '../../canvas/colours.js';
import { el, fit } from '../../canvas/elements.js';
import { fixed } from '../../canvas/numbers.js';
import { cells, outline } from '../../canvas/pointer.js';
import { tip } from '../../canvas/tip.js';
import { t } from '../../canvas/words.js';

const told = (value) => (Number.isFinite(value) ? fixed(value, 2) : '–');

/** A field of cells, a row a method: a column for each method, and apart one for the other class. */
export function agreement(self, { title }) {
  const canvas = el('canvas');
  const plot = el('div', { class: 'vv-plot' }, canvas);
  const spot = outline(plot);
  const said = el('p', { class: 'vv-text' });
  const node = el('div', { class: 'vv-stack' }, plot, said);
  /** @type {{ names: string[], value: (row: number, col: number) => number | null, other?: string }} */
  let now = { names: [], value: () => null };
  let place = null;
  const col = (cell) => cell % place.cols;
  const row = (cell) => Math.floor(cell / place.cols);
  const between = (cell) =>
    col(cell) < now.names.length
      ? title(now.names[col(cell)])
      : t('the same of {class}', { class: now.other });
  const name = (cell) => `${title(now.names[row(cell)])} ~ ${between(cell)}`;
  cells(self, canvas, {
    place: () => place,
    label: () => t('Rank correlations of the maps.'),
    name: (cell) => `${name(cell)}: ${told(now.value(row(cell), col(cell)))}`,
    hover(cell, event) {
      spot.put(...place.box(cell));
      tip.show(event, told(now.value(row(cell), col(cell))), title(now.names[row(cell)]), between(cell));
    },
    leave: () => spot.hide(),
  });

  function draw(names, { verdict, alike }) {
    const count = names.length;
    const pairs = new Map((verdict?.agreement || []).map(([a, b, value]) => [[a, b].sort().join(), value]));
    const value = (r, c) => {
      if (c === count) return alike?.found[names[r]] ?? null;
      return r === c ? 1 : (pairs.get([names[r], names[c]].sort().join()) ?? null);
    };
    now = { names, value, other: alike ? self.ui.nameOf(String(alike.classes[1])) : '' };
    const room = Math.max(260, self.below.clientWidth);
    const left = Math.min(150, room * 0.4);
    const pitch = Math.max(10, Math.min(30, (room - left) / (count + 2)));
    const cols = count + 1;
    const context = fit(canvas, left + (cols + 0.5) * pitch, count * pitch + 4, self.density);
    const numbers = Float32Array.from(
      { length: count * cols },
      (_, i) => value(Math.floor(i / cols), i % cols) ?? NaN,
    );
    const [matrix, beside] = [
      numbers.filter((_, i) => i % cols < count),
      numbers.filter((_, i) => i % cols === count),
    ];
    context.imageSmoothingEnabled = false;
    if (count)
      context.drawImage(
        tinted(matrix, count, count, 'balance', -1, 1),
        left,
        0,
        count * pitch,
        count * pitch,
      );
    if (count)
      context.drawImage(
        tinted(beside, count, 1, 'balance', -1, 1),
        left + (count + 0.5) * pitch,
        0,
        pitch,
        count * pitch,
      );
    context.fillStyle = self.colour('color');
    context.font = `12px ${self.colour('font-family')}`;
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    names.forEach((one, r) =>
      context.fillText(shortened(context, title(one), left - 8), left - 6, (r + 0.5) * pitch),
    );
    const box = (cell) => [
      left + (col(cell) + (col(cell) === count ? 0.5 : 0)) * pitch,
      row(cell) * pitch,
      pitch,
      pitch,
    ];
    place = { rows: count, cols, x: left, y: 0, width: (cols + 0.5) * pitch, height: count * pitch, box };
    said.textContent = verdict
      ? [
          t('Spearman’s rank correlation, −1 blue to 1 orange; in the same order across and down.'),
          t('Last column: a method’s maps of this class and of {class}; 1 means that it knows no class.', {
            class: now.other || '…',
          }),
        ].join(' ')
      : t('The ranking comes when all methods are tried.');
  }

  return { node, draw };
}

function shortened(context, text, room) {
  let cut = text;
  while (cut.length > 3 && context.measureText(cut).width > room) cut = `${cut.slice(0, -2)}…`;
  return cut;
}
