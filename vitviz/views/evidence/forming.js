// The answer forming: what the classifier would say if the model ended at a depth.

import { el, fit } from '../../canvas/elements.js';
import { bounds } from '../../canvas/numbers.js';
import { still } from '../../canvas/still.js';
import { t } from '../../canvas/words.js';
import { asked, className, signed } from './lines.js';
import { shown } from './wall.js';

// told apart with any colour vision
const COLOURS = ['#2f7fc0', '#c46a16', '#2a8a63', '#a3528c', '#7a6a00'];

/** What the classifier would say if the model ended at a depth. */
export function drawForming(self, made) {
  const { forming } = self.data;
  const [depths, count] = forming.shape;
  const width = Math.max(260, self.below.clientWidth);
  const room = self.below.clientHeight || 420;
  const size = self.zoom;
  const tall = Math.max(180 * size, Math.min(380 * size, room - 120 * size));
  const context = fit(made.chart, width, tall, self.density);
  const [left, right, top, bottom] = [44 * size, 12, 10 * size, 42 * size];
  const x = (depth) => left + (depth / (depths - 1)) * (width - left - right);
  const y = (share) => top + (1 - share) * (tall - top - bottom);
  const ink = self.colour('color');
  made.chart.parentElement.hidden = made.title.hidden = false;
  made.title.textContent = t('The answer forming: probability if the model ended there');
  context.font = `${12 * self.zoom}px ${self.colour('font-family')}`;
  context.fillStyle = ink;
  context.textBaseline = 'middle';
  context.textAlign = 'right';
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    context.globalAlpha = 0.14;
    context.fillRect(left, y(share), width - left - right, 1);
    context.globalAlpha = 0.85;
    context.fillText(`${100 * share} %`, left - 6, y(share));
  }
  context.globalAlpha = 1;
  context.lineWidth = 2;
  for (let c = 0; c < count; c++) {
    context.strokeStyle = COLOURS[c];
    context.beginPath();
    for (let depth = 0; depth < depths; depth++)
      context.lineTo(x(depth), y(forming.values[depth * count + c]));
    context.stroke();
  }
  context.textAlign = 'center';
  context.textBaseline = 'top';
  const every = Math.max(1, Math.ceil((22 * size) / ((width - left - right) / (depths - 1))));
  for (let depth = 0; depth < depths; depth += every)
    context.fillText(String(depth), x(depth), tall - bottom + 6 * size);
  context.fillText(t('after so many layers'), left + (width - left - right) / 2, tall - 16 * size);
  made.legend.replaceChildren(
    ...self.ui.classes.map((one, i) =>
      el(
        'span',
        { class: 'vv-legend' },
        el('span', { class: 'vv-dot-key', style: `background:${COLOURS[i]}` }),
        el('span', { text: one.name }),
      ),
    ),
  );
  context.globalAlpha = 0.5;
  context.fillStyle = ink;
  context.fillRect(x(self.settings.depth) - 0.5, top, 1, tall - top - bottom);
  context.globalAlpha = 1;
  made.depthAt = (across) =>
    Math.max(0, Math.min(depths - 1, Math.round(((across - left) / (width - left - right)) * (depths - 1))));
  made.chart.setAttribute('aria-label', made.title.textContent);
  made.said.textContent = `${t(
    'The final norm is applied afresh at every depth; early layers were never trained to be read so.',
  )} ${soFar(self)}`;
  shown(made.shares, false);
}

/** The other reading, which adds up: the share so far, the norm held as it is in the end. */
function soFar(self) {
  const { values } = self.data.share;
  const told = {
    depth: self.settings.depth,
    share: signed(values[self.settings.depth]),
    logit: signed(values.at(-1)),
  };
  return t(
    'With the norm held as in the end, the share so far after {depth} layers is {share} of {logit}.',
    told,
  );
}

/** Whether every patch has an answer of its own here; its numbers are then asked for. */
export const forming = (self) =>
  self.settings.show === 'forming' && ['reading', 'probe'].includes(self.summary.patches);

/** Every patch's own answer as a map, its three best under the pointer. */
export function ownAnswers(self, name) {
  const { own } = self.data;
  const { depth } = self.settings;
  const most = still(self, `own/${asked(self)}`, 0, bounds(own.values.filter(Number.isFinite))[1])[1] || 1;
  return {
    values: own.values,
    low: 0,
    high: most,
    colours: 'viridis',
    label: t('Probability of {name}, read from the patch alone', { name }),
    title: t('Each patch’s own answer after {depth} layers', { depth }),
    said: (cell) => percent(own.values[cell]),
  };
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;

/** The best answers of one patch, likeliest first; none where the patch was left out. */
export function bestOf(self, cell) {
  const [, , ranks] = self.data.best.shape;
  return Array.from({ length: ranks }, (_, rank) => {
    const [index, share] = self.data.best.values.subarray(
      2 * (cell * ranks + rank),
      2 * (cell * ranks + rank) + 2,
    );
    return share < 0 ? '' : `${className(self, index)} ${percent(share)}`;
  }).filter(Boolean);
}

/** What such an answer is worth: a reading, a probe, or why there is none. */
export function worth(self) {
  const { patches } = self.summary;
  if (patches === 'probe')
    return t(
      'A probe: the classifier was never trained to read a patch, so this is not the model’s opinion.',
    );
  if (patches === 'reading') return t('A reading: the classifier reads the mean of these patches.');
  return t(patches);
}
