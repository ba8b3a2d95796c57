// Steps 2 and 3: the patches, and their numbers.

import { div, el, fit, stack } from '../../frontend/elements.js';
import { patchName, placeName, t } from '../../frontend/i18n.js';
import { normalised } from '../../frontend/normalisation.js';
import { outline, plotted } from '../../frontend/pointer.js';
import { board, strip } from './board.js';
import { beside, captioned, digits, drawPatch, folded, pair, patchOf, shapeOf, take } from './parts.js';
import { colourNames } from './picture.js';

/** The numbers that the model reads of one patch. */
export const flattened = (self, patch) => normalised(self.data.bytes, patch, self.grid, self.summary);

export const patchesStep = {
  build(self) {
    const cut = board(self, { label: t('The image, cut into patches.'), pick: take(self) });
    const line = el('canvas', {
      role: 'img',
      'aria-label': t('The patches in sequence order'),
    });
    const linePlot = div('vv-plot', line);
    const here = outline(linePlot, 'vv-pinned');
    const text = el('p', { class: 'vv-text' });
    const node = pair(
      captioned(t('Image, cut into patches'), cut.node),
      captioned(t('Read row by row'), linePlot, text),
    );
    return { node, cut, line, here, text };
  },
  draw(self, made) {
    const { rows, cols, tall, wide } = shapeOf(self);
    const { picture, rest, ceiling, large } = beside(self, 380);
    const count = rows * cols;
    const patch = patchOf(self);
    made.cut.draw({ width: picture, gap: Math.min(4, (picture / cols) * 0.16), mark: patch });
    const area = Math.min(rest, 640 * large, ceiling);
    const across = Math.min(count, Math.max(cols + 3, Math.floor(Math.sqrt((count * area) / 180))));
    const pitch = area / across;
    const size = pitch * 0.82;
    const down = (pitch * tall) / wide;
    const context = fit(made.line, area, Math.ceil(count / across) * down, self.density);
    const at = (i) => [(i % across) * pitch, Math.floor(i / across) * down, size, (size * tall) / wide];
    for (let i = 0; i < count; i++) drawPatch(self, context, i, at(i));
    made.here.put(...at(patch));
    made.text.textContent = `${patchName(patch)}: ${placeName(self.grid, patch)}.`;
  },
};

export const flattenStep = {
  build(self) {
    const from = board(self, { label: t('The image, cut into patches.'), pick: take(self) });
    const about = { role: 'img', 'aria-label': t('Selected patch') };
    const { canvas: big, plot, spot } = plotted(about);
    const start = el('p', { class: 'vv-numbers' });
    const colour = (i) => {
      const [pixel, wide] = [Math.floor(i / 3), self.grid.patch[1]];
      const at = { row: Math.floor(pixel / wide) + 1, col: (pixel % wide) + 1 };
      const told = { ...at, colour: colourNames()[i % 3] };
      return t('{colour} of the pixel in row {row}, column {col}', told);
    };
    const touched = (i) => {
      const [rows, cols] = self.grid.patch;
      spot.over({ rows, cols, width: made.side, height: (made.side * rows) / cols }, Math.floor(i / 3));
    };
    const row = strip(self, { label: t('The patch as a row of numbers'), touched, extra: colour });
    const all = folded(t('All numbers'), () =>
      el('p', { class: 'vv-numbers', text: Array.from(made.values, digits).join('  ') }),
    );
    const above = pair(captioned(t('Pick a patch'), from.node), captioned(t('Its pixels'), plot));
    const node = stack(above, row.node, start, all.node);
    const made = { node, from, big, row, start, all, side: 0, values: [] };
    return made;
  },
  draw(self, made) {
    const { tall, wide } = shapeOf(self);
    const { picture, width, large } = beside(self);
    const patch = patchOf(self);
    const values = flattened(self, patch);
    made.values = values;
    made.side = Math.min(picture, (picture * wide) / tall);
    made.from.draw({ width: picture, mark: patch });
    const context = fit(made.big, made.side, (made.side * tall) / wide, self.density);
    drawPatch(self, context, patch, [0, 0, made.side, (made.side * tall) / wide]);
    const told = { patch: patchName(patch), count: values.length };
    const text = t('{patch} as a row of {count} numbers', told);
    made.row.draw(values, { width: Math.min(width, 1000 * large), text });
    made.start.textContent = `${Array.from(values.slice(0, 9), digits).join('  ')} …`;
    made.all.fill();
  },
};
