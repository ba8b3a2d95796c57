// The scale beside a coloured figure.

import { ramp } from './colours.js';
import { div, el } from './elements.js';
import { number, ticks } from './numbers.js';

const WIDTH = 260; // px of a bar that numbers are set for; a narrower one has fewer
const LETTER = 7 / 12; // of their size, as wide as one is

/** A numbered colour scale. `update(map, low, high, label)`, `mark(value)` points at one value. */
export function colourbar(map = 'viridis') {
  const strip = ramp(map, 'vv-bar-strip');
  const label = div('vv-bar-label');
  const marks = div('vv-bar-ticks');
  const caret = el('div', { class: 'vv-bar-caret', hidden: true });
  const node = div('vv-bar', label, div('vv-bar-body', strip, caret), marks);
  let low = 0;
  let high = 1;
  let drawn = '';
  const update = (name, from, to, text) => {
    const width = Math.min(node.clientWidth || WIDTH, WIDTH);
    const letter = LETTER * (parseFloat(getComputedStyle(marks).fontSize) || 12);
    const state = [name, from, to, text, width, letter].join('|');
    if (state === drawn) return;
    [drawn, low, high] = [state, from, to];
    label.textContent = text;
    ramp(name, 'vv-bar-strip', strip);
    const share = (value) => (to > from ? ((value - from) / (to - from)) * 100 : 0);
    const said = (value) => number(Math.abs(value) < (to - from) * 1e-9 ? 0 : value);
    const room = (value) => ((100 * letter) / width) * said(value).length; // per cent of the bar
    let end = room(from) + 2;
    const inner = ticks(from, to, 4).filter((value) => {
      const [left, right] = [share(value) - room(value) / 2, share(value) + room(value) / 2];
      const fits = left > end && right < 98 - room(to);
      if (fits) end = right + 2;
      return fits;
    });
    marks.replaceChildren(
      ...[from, ...inner, ...(to > from ? [to] : [])].map((value) => {
        const at = share(value);
        const kind = at === 0 ? 'vv-first' : at === 100 ? 'vv-last' : null;
        return el('span', { style: `left:${at}%`, class: kind, text: said(value) });
      }),
    );
  };
  const mark = (value) => {
    const gone = value === null || !Number.isFinite(value);
    if (caret.hidden !== gone) caret.hidden = gone;
    if (gone) return;
    const at = high > low ? ((value - low) / (high - low)) * 100 : 50;
    caret.style.left = `${Math.max(0, Math.min(100, at))}%`;
  };
  update(map, 0, 1, '');
  return { node, update, mark };
}
