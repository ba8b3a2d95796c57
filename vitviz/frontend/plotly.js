// plotly.js, loaded when a chart is first drawn.

import { address, Refusal } from './data.js';
import { el } from './elements.js';
import path from './plotly_address.js';

/** False in a document without a server; charts are then drawn by `svg_chart.js`. */
export const available = Boolean(path);

/** @type {Promise<any> | null} */
let loading = null;

/** A promise of the library. A failed request is repeated for the next chart. */
export function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const failed = () => {
      loading = null;
      reject(new Refusal('The server cannot be reached.'));
    };
    const onload = () => resolve(window.Plotly);
    document.head.append(el('script', { src: address(path), async: true, onload, onerror: failed }));
  });
  return loading;
}

/** Text that Plotly shows as it is: its labels are a subset of HTML. */
export const plain = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
