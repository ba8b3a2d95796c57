// Step 8: all heads of a layer, and how long the tokens become from layer to layer.

import { chartBeside } from '../../canvas/chart.js';
import { tinted } from '../../canvas/colours.js';
import { unpacked } from '../../canvas/data.js';
import { div, el, fit, stack, thumb } from '../../canvas/elements.js';
import { bounds } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';
import { board } from './board.js';
import { placed, prefixChips } from './encoder.js';
import { beside, dial, first, nameOf, pair, shapeOf, take } from './parts.js';

export const layersStep = {
  build(self) {
    const layer = dial(self, 'layer', t('Layer'), self.value.layers);
    const chips = prefixChips(self);
    const from = board(self, { label: t('Pick the query.'), pick: take(self) });
    const title = el('p', { class: 'vv-h' });
    const heads = div('vv-pins vv-heads');
    const faces = Array.from({ length: self.value.heads }, (_, h) => {
      const canvas = el('canvas', { role: 'img' });
      const choose = () => self.set('head', h + 1);
      return { canvas, node: thumb(canvas, t('head {head}', { head: h + 1 }), choose) };
    });
    heads.append(...faces.map((face) => face.node));
    const chart = chartBeside(self);
    const asked = el('p', { class: 'vv-h' });
    const note = el('p', {
      class: 'vv-text',
      text: t('Brightness: each head’s own largest weight. A click chooses the head for the step before.'),
    });
    const node = stack(
      div('vv-row', layer.node, chips.node),
      pair(stack(asked, from.node), stack(title, heads, note)),
      chart.node,
    );
    return { node, layer, chips, from, title, faces, chart, asked };
  },
  items: () => ['heads', 'chart'],

  draw(self, made) {
    const { rows, cols, aspect } = shapeOf(self);
    const { values, shape } = self.data.heads;
    const tokens = shape[1];
    const { picture, wide: roomy, width, ceiling, large } = beside(self, 280);
    const skip = first(self);
    const { head, layer, token } = self.settings;
    made.layer.show();
    made.chips.show();
    made.from.draw({ width: picture, mark: placed(self, token) });
    made.asked.textContent = t('The query: {token}', { token: nameOf(self, token) });
    made.title.textContent = t('Layer {layer}: where each head looks', { layer });
    const count = made.faces.length;
    const area = roomy ? Math.min(640 * large, width - picture - 36) : width;
    const half = Math.ceil(count / 2);
    const many = half <= 6 && roomy ? half : Math.floor(area / (84 * large));
    const across = count <= 4 ? count : Math.min(count, many);
    const side = Math.min(150 * large, area / across - 16, (ceiling * 0.4) / Math.ceil(count / across));
    made.faces.forEach(({ canvas, node }, h) => {
      const line = values.subarray(h * tokens + skip, (h + 1) * tokens);
      const context = fit(canvas, side, side * aspect, self.density);
      const map = tinted(line, rows, cols, 'viridis', 0, bounds(line)[1] || 1);
      context.imageSmoothingEnabled = false;
      context.drawImage(map, 0, 0, side, side * aspect);
      canvas.setAttribute('aria-label', t('Attention of head {head}', { head: h + 1 }));
      node.setAttribute('aria-pressed', String(h + 1 === head));
      node.style.width = `${side + 8}px`;
    });
    const { width: whole, large: size } = beside(self);
    const figure = unpacked(self.data.chart);
    figure.levels.push({ value: layer, upright: true, name: '', colour: '#7d838e' });
    figure.keyed = innerWidth >= 768; // a phone has no room at the lines' ends: a legend says the names
    made.chart.draw(figure, Math.min(whole, 760 * size), Math.min(220 * size, ceiling * 0.4));
  },
};
