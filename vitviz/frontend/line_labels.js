// Names of lines at their ends, instead of a legend below.

import { svg } from './elements.js';
import { light } from './highlight.js';
import { t } from './i18n.js';

const LETTER = 6.6; // px, average width of a letter
const GAP = 11.5; // px between two names
const TALL_GAP = 14; // px, for Chinese and Korean characters
const EDGE = 5; // px for leader lines

/** Width of the longest text in letters; Chinese and Korean characters count as 1.7. */
export const letters = (texts) =>
  Math.max(0, ...texts.map((text) => [...text].reduce((sum, one) => sum + (one > '\u2e80' ? 1.7 : 1), 0)));

/** Width of the names beside a chart, in px at zoom 1, with a margin for wide letters in short names. */
export const besides = (series) => 3 + EDGE + LETTER * (1.5 + letters(series.map(({ name }) => t(name))));

/** Positions of labels near `wanted`: at least `gap` apart, between `top` and `foot`. */
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

/**
 * Names beside the last step at which the lines differ; thick and first lines have priority if space is
 * short.
 */
export function ends(series, { x, y, right, top, low, size, ink, pick }) {
  const gap = size * (series.some(({ name }) => /[\u2e80-\uffff]/.test(t(name))) ? TALL_GAP : GAP);
  const room = Math.floor((low - top + 16 * size) / gap);
  const asked = [...series].sort((a, b) => b.thick - a.thick).slice(0, room);
  const shown = series.filter((one) => asked.includes(one));
  const differ = (i) => new Set(series.map((one) => one.y.at(i))).size > 1;
  const last = [-1, -2].find(differ) ?? -1;
  const wanted = shown.map((one) => y(one.y.at(last)));
  const found = spread(wanted, gap, top - 6 * size, low + 6 * size);
  return shown.flatMap((one, i) => {
    const [edge, stroke] = [right + EDGE * size, ink(one.colour)];
    const points = `${x(one.x.at(last)).toFixed(1)},${wanted[i].toFixed(1)} ${edge},${found[i].toFixed(1)}`;
    const place = { x: edge + 2, y: found[i] + 4 * size, style: `--vv-own:${stroke}`, 'data-lit': one.key };
    const text = svg('text', { class: `vv-end${one.muted ? ' vv-muted' : ''}`, ...place }, t(one.name));
    const alone = (run) => (event) => {
      event.stopPropagation();
      run(one.key);
    };
    text.addEventListener('pointermove', alone(light));
    if (pick) text.addEventListener('click', alone(pick));
    const leader = { class: 'vv-leader', points, fill: 'none', stroke: one.muted ? 'currentColor' : stroke };
    return [svg('polyline', leader), text];
  });
}
