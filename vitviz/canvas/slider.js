// A slider with its name above it and what it says there.

import { div, el, span } from './elements.js';

/**
 * `head` and `input`; `show(value, text, most)` puts a value into it and says it.
 * @param {string} label
 * @param {{ min: number, max?: number, step?: number, output?: any }} range
 * @param {(value: number) => any} change
 */
export function slider(
  label,
  { min, max = min, step = 1, output = el('output', { class: 'vv-output' }) },
  change,
) {
  const oninput = () => change(Number(input.value));
  const input = el('input', { type: 'range', min, max, step, 'aria-label': label, oninput });
  const head = div('vv-label', span(label), output);
  const show = (value, text, most = max) => {
    [input.max, input.value, output.textContent] = [String(most), String(value), text];
    input.style.setProperty('--vv-fill', `${(100 * (value - min)) / (most - min || 1)}%`);
  };
  return { head, input, show };
}
