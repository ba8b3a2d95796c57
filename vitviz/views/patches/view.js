// The model's input cut into its patches; one of them picked, with the numbers it is made of.

import { colourbar } from '../../canvas/colours.js';
import { pixels } from '../../canvas/data.js';
import { div, el, figure, fit, stack } from '../../canvas/elements.js';
import { drawMissing } from '../../canvas/missing.js';
import { number } from '../../canvas/numbers.js';
import { framing } from '../../canvas/outliers.js';
import { cells, outline, plotted, tip } from '../../canvas/pointer.js';
import { t } from '../../canvas/words.js';
import { described, inspect } from './detail.js';
import { drawChip, drawFrame, layout } from './layout.js';

export default () => ({
  title: 'The picture as a sequence of patches',
  keeps: true,
  reset: (self) => (self.picked = null),

  build(self) {
    self.picked = null;
    const { canvas, plot, spot: hover } = plotted();
    const chosen = outline(plot, 'vv-pinned');
    const framed = framing(self, plot);
    const count = el('p', { class: 'vv-text' });
    const name = el('p', { class: 'vv-h' });
    const where = el('p', { class: 'vv-text' });
    const big = el('canvas', { role: 'img', 'aria-label': t('The picked patch') });
    const bar = colourbar();
    const colours = [t('Red'), t('Green'), t('Blue')];
    const planes = colours.map((colour) => el('canvas', { role: 'img', 'aria-label': colour }));
    const strip = el('canvas', { tabindex: 0 });
    const stripName = el('p', { class: 'vv-text' });
    const spot = outline(el('div'));
    const norms = el('p', { class: 'vv-text' });
    const normBars = div('vv-norms');
    const stripPlot = div('vv-plot', strip, spot.node);
    const numbered = planes.map((plane, i) => figure(plane, colours[i]));
    const shown = div('vv-planes', figure(big, t('Pixels')), ...numbered);
    const kind = { class: 'vv-stack vv-detail vv-flat', tabindex: '0' };
    const detail = el('div', kind, el('div', {}, name, where), shown, bar.node, normBars, norms);
    const row = div('vv-row vv-positions', stack(plot, count, framed.node), detail);
    self.figure.append(div('vv-stack vv-patches', row, div('vv-stack vv-rest', stripName, stripPlot)));
    const learned = (token) => [
      t('Token {number}: {name}', { number: token + 1, name: t(self.grid.prefix[token]) }),
      t('learned, stands before the patches'),
    ];
    const pick = (cell) => {
      const patch = this.patch(self, cell);
      if (patch < 0 || patch >= self.grid.rows * self.grid.cols) return;
      self.picked = patch;
      inspect(self);
    };
    cells(self, canvas, {
      place: () => self.ui.place,
      label: () => t('The model’s input, cut into patches.'),
      name: (cell) => {
        const patch = this.patch(self, cell);
        if (patch >= self.grid.rows * self.grid.cols) return '';
        return patch < 0 ? learned(cell).join(', ') : described(self, patch).join(', ');
      },
      start: () => self.picked + self.ui.layout.prefix,
      hover: (cell, event) => {
        const patch = this.patch(self, cell);
        if (patch < 0 || patch >= self.grid.rows * self.grid.cols) {
          hover.hide();
          return patch < 0 ? tip.show(event, ...learned(cell)) : tip.hide();
        }
        hover.put(...self.ui.layout.at(patch));
        tip.show(event, ...described(self, patch));
      },
      leave: () => hover.hide(),
      pick,
      hold: pick,
    });
    const numbers = (event) => {
      const box = strip.getBoundingClientRect();
      const { across, cell, tall, values, per } = self.ui.strip || {};
      if (!values) return;
      const col = Math.floor((event.clientX - box.left) / cell);
      const row = Math.floor((event.clientY - box.top) / tall);
      const i = row * across + col;
      if (col < 0 || col >= across || i < 0 || i >= values.length) return tip.hide();
      spot.put(col * cell, row * tall, cell, tall);
      bar.mark(values[i]);
      const pixel = Math.floor(i / 3);
      const at = { colour: colours[i % 3], row: Math.floor(pixel / per) + 1, col: (pixel % per) + 1 };
      const place = t('Number {index} of {count}', { index: i + 1, count: values.length });
      const told = t('{colour} of the pixel in row {row}, column {col}', at);
      tip.show(event, number(values[i], 4), place, told);
    };
    strip.addEventListener('pointermove', numbers);
    strip.addEventListener('pointerdown', numbers);
    strip.addEventListener('pointerleave', () => {
      spot.hide();
      tip.hide();
      bar.mark(null);
    });
    const texts = { count, name, where, stripName, norms, normBars };
    return { canvas, chosen, framed, big, planes, bar, strip_: strip, ...texts };
  },

  patch: (self, cell) => cell - self.ui.layout.prefix,

  pictures: () => ['input'],
  items: (self) => (self.value.items.norms ? ['norms'] : []), // they come with the pass

  draw(self) {
    const { ui, grid, data } = self;
    const goal = layout(self);
    const count = grid.rows * grid.cols;
    data.bytes ??= pixels(data.input);
    ui.layout = goal;
    const size = { width: goal.pitch * goal.across, height: goal.down * goal.rows };
    ui.place = { rows: goal.rows, cols: goal.across, x: goal.left, y: goal.top, ...size };
    const context = fit(ui.canvas, goal.width, goal.height, self.density);
    const ink = self.colour('color');
    const font = self.colour('font-family');
    context.imageSmoothingEnabled = false;
    const [ph, pw] = grid.patch;
    for (let i = 0; i < count; i++) {
      const [x, y, w, h] = goal.at(i);
      const last = goal.spread === 0 ? 0.5 : 0;
      const from = [(i % grid.cols) * pw, Math.floor(i / grid.cols) * ph, pw, ph];
      context.drawImage(data.input, ...from, x, y, w + last, h + last);
    }
    drawMissing(self, context, goal.at);
    context.fillStyle = ink;
    context.textBaseline = 'middle';
    context.textAlign = 'center';
    if (goal.sequence) {
      for (let i = 0; i < goal.prefix; i++) drawChip(self, context, goal, i);
      context.font = `${(goal.pitch < 26 * self.zoom ? 9 : 10.5) * self.zoom}px ${font}`;
      context.globalAlpha = 0.8;
      if (goal.label && goal.pitch >= 18 * self.zoom) {
        for (let i = 0; i < count; i++) {
          const [x, y, w, h] = goal.at(i);
          context.fillText(String(i + 1), x + w / 2, y + h + goal.label / 2, goal.pitch);
        }
      }
      context.globalAlpha = 1;
    } else {
      drawFrame(self, context, goal, ink, font);
    }
    const gone = self.value.missing?.as === 'dropped' ? self.value.missing.patches.length : 0;
    const tokens = count - gone + grid.prefix.length;
    const left = gone ? ` − ${t('{count} left out', { count: gone })}` : '';
    const sum = `${grid.rows} × ${grid.cols} = ${count}${left}`;
    const names = grid.prefix.map((n) => t(n)).join(', ');
    const told = { sum, height: ph, width: pw, prefix: grid.prefix.length, names, tokens };
    ui.count.textContent = names
      ? t('{sum} patches of {height} × {width} pixels + {prefix} ({names}) = {tokens} tokens', told)
      : t('{sum} patches of {height} × {width} pixels: {tokens} tokens', told);
    inspect(self);
    // before the pass nothing is known of the norms, and nothing is missing
    if (self.value.items.norms) ui.framed.draw(goal, goal.at);
  },
});
