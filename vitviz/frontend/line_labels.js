// Names of lines where they end, instead of a legend below.

import { svg } from './elements.js';
import { light } from './highlight.js';
import { t } from './i18n.js';

const LETTER = 6.6; // px, as wide as one is
const GAP = 11.5; // px from name to name
const EDGE = 5; // px that leaders take

/** How wide texts are in letters, those of Chinese and Korean counted as they are. */
export const letters = (texts) =>
  Math.max(0, ...texts.map((text) => [...text].reduce((sum, one) => sum + (one > '\u2e80' ? 1.7 : 1), 0)));

/** The room that the names take beside a chart, px at one; a short name's letters may be wide ones. */
export const besides = (series) => 3 + EDGE + LETTER * (1.5 + letters(series.map(({ name }) => t(name))));

/** Where labels stand that want to be at `wanted`: none closer than `gap` to another, `top` to `foot`. */
export function spread(wanted, gap, top, foot) {
  const order = wanted.map((_, i) => i).sort((a, b) => wanted[a] - wanted[b]);
  const found = [];
  let least = top;
  for (const i of order) {
    found[i] = Math.max(least, wanted[i]);
    least = found[i] + gap;
  }
  let most = foot;
  for (const i of order.reverse()) {
    found[i] = Math.min(most, found[i]);
    most = found[i] - gap;
  }
  return found;
}

/** Names beside the last step at which lines differ, the thick and the first ones as far as there is room. */
export function ends(series, { x, y, right, top, low, size, ink, pick }) {
  const room = Math.floor((low - top + 16 * size) / (GAP * size));
  const asked = [...series].sort((a, b) => b.thick - a.thick).slice(0, room);
  const shown = series.filter((one) => asked.includes(one));
  const differ = (i) => new Set(series.map((one) => one.y.at(i))).size > 1;
  const last = [-1, -2].find(differ) ?? -1;
  const wanted = shown.map((one) => y(one.y.at(last)));
  const found = spread(wanted, GAP * size, top - 6 * size, low + 6 * size);
  return shown.flatMap((one, i) => {
    const [edge, stroke] = [right + EDGE * size, ink(one.colour)];
    const points = `${x(one.x.at(last)).toFixed(1)},${wanted[i].toFixed(1)} ${edge},${found[i].toFixed(1)}`;
    const place = { x: edge + 2, y: found[i] + 4 * size, style: `fill:${stroke}` };
    const text = svg('text', { class: 'vv-end', ...place, 'data-lit': one.key }, t(one.name));
    const alone = (run) => (event) => {
      event.stopPropagation();
      run(one.key);
    };
    text.addEventListener('pointermove', alone(light));
    if (pick) text.addEventListener('click', alone(pick));
    return [svg('polyline', { class: 'vv-leader', points, fill: 'none', stroke }), text];
  });
}
