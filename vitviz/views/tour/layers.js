// Step 8: all heads of a layer, and how long the tokens become from layer to layer.

import { tinted } from '../../canvas/colours.js';
import { div, el, fit, stack, thumb } from '../../canvas/elements.js';
import { tokenName } from '../../canvas/names.js';
import { bounds, number, ticks } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';
import { board } from './board.js';
import { placed, prefixChips } from './encoder.js';
import { beside, captioned, dial, first, nameOf, pair, shapeOf, take } from './parts.js';

export const layersStep = {
  build(self) {
    const layer = dial(self, 'layer', t('Layer'), self.value.layers);
    const chips = prefixChips(self);
    const from = board(self, { label: t('Pick the query.'), pick: take(self) });
    const title = el('p', { class: 'vv-h' });
    const heads = div('vv-heads');
    const faces = Array.from({ length: self.value.heads }, (_, h) => {
      const canvas = el('canvas', { role: 'img' });
      const choose = () => self.set('head', h + 1);
      return { canvas, node: thumb(canvas, t('head {head}', { head: h + 1 }), choose) };
    });
    heads.append(...faces.map((face) => face.node));
    const chart = el('canvas', { role: 'img' });
    const asked = el('p', { class: 'vv-h' });
    const note = el('p', {
      class: 'vv-text',
      text: t('Brightness: each head’s own largest weight. A click chooses the head for the step before.'),
    });
    const node = stack(
      div('vv-row', layer.node, chips.node),
      pair(stack(asked, from.node), stack(title, heads, note)),
      captioned(t('Length of the tokens in the stream, layer by layer'), chart),
    );
    return { node, layer, chips, from, title, faces, chart, asked };
  },
  items: () => ['heads'],

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
    this.chart(self, made.chart, layer);
  },

  /** The mean length of the patch tokens and of each prefix token, z_0 to z_L. */
  chart(self, canvas, layer) {
    const lines = Object.entries(self.summary.norms);
    const { width: whole, ceiling, large } = beside(self);
    const width = Math.min(whole, 760 * large);
    const height = Math.min(220 * large, ceiling * 0.4);
    const [left, right, top, bottom] = [46, 100, 10, 34].map((side) => side * large);
    const last = self.value.layers;
    const most = Math.max(...lines.flatMap(([, values]) => values));
    const context = fit(canvas, width, height, self.density);
    const ink = self.colour('color');
    const font = self.colour('font-family');
    const x = (l) => left + (l / last) * (width - left - right);
    const y = (value) => height - bottom - (value / (most || 1)) * (height - top - bottom);
    context.font = `${12 * large}px ${font}`;
    context.textBaseline = 'middle';
    context.fillStyle = context.strokeStyle = ink;
    for (const value of ticks(0, most, 4)) {
      context.globalAlpha = 0.15;
      context.fillRect(left, y(value), width - left - right, 1);
      context.globalAlpha = 0.75;
      context.textAlign = 'right';
      context.fillText(number(value), left - 8 * large, y(value));
    }
    context.textAlign = 'center';
    for (let l = 0; l <= last; l += Math.ceil(last / 12))
      context.fillText(String(l), x(l), height - bottom + 14 * large);
    context.fillText(t('after layer (0: z₀)'), (left + width - right) / 2, height - 6 * large);
    context.globalAlpha = 0.12;
    context.fillRect(x(layer - 1), top, x(1) - x(0), height - top - bottom);
    const ends = [];
    lines.forEach(([name, values]) => {
      const patches = name === 'patches';
      const colour = patches ? self.colour('--vv-accent') : ink;
      context.globalAlpha = patches || !name.startsWith('register') ? 1 : 0.35;
      context.strokeStyle = context.fillStyle = colour;
      context.lineWidth = 2;
      context.setLineDash(patches ? [] : [5, 3]);
      context.beginPath();
      values.forEach((value, l) => context.lineTo(x(l), y(value)));
      context.stroke();
      context.setLineDash([]);
      let at = y(values[last]);
      while (ends.some((other) => Math.abs(other - at) < 14 * large))
        at += (at > height / 2 ? -14 : 14) * large;
      ends.push(at);
      context.textAlign = 'left';
      context.fillText(lineName(name), x(last) + 8 * large, at, right - 10 * large);
    });
    context.globalAlpha = 1;
    const said = ([name, values]) => `${lineName(name)}: ${values.map((value) => number(value)).join(', ')}`;
    canvas.setAttribute('aria-label', lines.map(said).join('. '));
  },
};

const lineName = (name) => (name === 'patches' ? t('patches (mean)') : tokenName(name));
