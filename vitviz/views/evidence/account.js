// The account beside the map: a chart (the waterfall, or the answer forming) and the wall of all heads.

import { el } from '../../canvas/elements.js';
import { still } from '../../canvas/still.js';
import { t } from '../../canvas/words.js';
import { asked, signed } from './lines.js';
import { drawWall, wall } from './wall.js';

/** The parts of the account; `pick(layer, head)` is told of a head, both from 1. */
export function account(self, { pick }) {
  const title = el('p', { class: 'vv-h' });
  const chart = el('canvas', { role: 'img' });
  const said = el('p', { class: 'vv-text' });
  const legend = el('p', { class: 'vv-legends' });
  const shares = wall(self, {
    pick,
    value: (index) => made.values[index],
    label: () => t('The share of every head.'),
  });
  const node = el(
    'div',
    { class: 'vv-stack' },
    title,
    el('div', { class: 'vv-plot' }, chart),
    said,
    legend,
    shares.title,
    shares.plot,
  );
  const made = { node, title, chart, said, legend, shares, depthAt: null, values: [] };
  chart.addEventListener('click', (event) => {
    if (made.depthAt) self.set('depth', made.depthAt(event.offsetX)); // the slider is for who has no pointer
  });
  return made;
}

/** The largest of numbers that may be none, as far as it has been in this film: walls stand still. */
export function largest(self, name, ...lists) {
  const most = lists
    .flatMap((list) => Array.from(list))
    .reduce((found, value) => (Number.isNaN(value) ? found : Math.max(found, Math.abs(value))), 0);
  return still(self, `${name}/${asked(self)}`, 0, most)[1] || 1;
}

/** The direct share of every head, or what the chosen patches gave through it. */
export function drawShares(self, made, { values, room, width, some = false, most = undefined }) {
  const end = most ?? largest(self, some ? 'wall/patches' : 'wall', values);
  const told = { most: signed(end) };
  const title = some
    ? t('What the chosen patches gave through every head, up to {most}', told)
    : t('The share of every head, up to {most}', told);
  made.values = values;
  drawWall(self, made.shares, { values, most: end, title, room, width });
}

/** Takes the chart out of view; the wall stays. */
export function hideChart(made) {
  made.chart.parentElement.hidden = made.title.hidden = true;
  made.said.textContent = '';
  made.legend.replaceChildren();
}
