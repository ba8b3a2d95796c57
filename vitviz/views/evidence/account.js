// The account beside the map: a chart (the waterfall, or the answer forming) and the wall of all heads.

import { chartBeside } from '../../canvas/chart.js';
import { unpacked } from '../../canvas/data.js';
import { differs } from '../../canvas/difference.js';
import { el, stack } from '../../canvas/elements.js';
import { still } from '../../canvas/still.js';
import { t } from '../../canvas/words.js';
import { asked, either } from './lines.js';
import { drawWall, wall } from './wall.js';

/** The parts of the account; `pick(layer, head)` is told of a head, both from 1. */
export function account(self, { pick }) {
  const drawn = chartBeside(self);
  const said = el('p', { class: 'vv-text' });
  const shares = wall(self, pick);
  const node = stack(drawn.node, said, shares.node);
  return { node, drawn, said, shares };
}

/** The chart, so tall, with a sentence below; `at` is the depth in view. */
export function drawChart(self, made, tall, said, at = null) {
  made.drawn.node.hidden = false;
  const figure = unpacked(self.data.chart);
  if (at !== null) figure.levels.push({ value: at, upright: true, name: '', colour: '#7d838e' });
  made.drawn.draw(figure, Math.max(260, self.below.clientWidth), tall);
  made.said.textContent = said;
}

/** The account as a waterfall, and the wall, which alone is of chosen patches: nothing moves. */
export function drawAccount(self, made) {
  const room = self.deep || 480;
  const tall = Math.max(140 * self.zoom, Math.min(260 * self.zoom, room * 0.32));
  const direct = differs(self)
    ? t(
        'Each line less what it was before, at the deviation of the last norm as it was before; what the ' +
          'other deviation does is the line of the norm.',
      )
    : t('Attention that an early layer moved counts where it is read in the end: these are direct shares.');
  drawChart(self, made, tall, direct);
  const used = made.drawn.node.offsetHeight + made.said.offsetHeight + 20 + 20 * self.zoom;
  const [some, width] = [self.settings.patches !== '', Math.max(260, self.below.clientWidth)];
  drawShares(self, made, { values: self.data.heads.values, some, room: room - used, width });
}

/** The largest paths: the graph has the room of the wall too. */
export function drawGraph(self, made) {
  const room = self.deep || 560;
  made.shares.node.hidden = true;
  drawChart(self, made, Math.max(220 * self.zoom, Math.min(560 * self.zoom, room - 200 * self.zoom)), '');
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
  const told = { most: either(end) };
  const title = some
    ? t('Of the chosen patches, up to {most}', told)
    : t('The share of every head, up to {most}', told);
  made.shares.node.hidden = false;
  drawWall(self, made.shares, { values, most: end, title, room, width });
}

/** Takes the chart out of view; the wall stays. */
export function hideChart(made) {
  made.drawn.node.hidden = true;
  made.said.textContent = '';
}
