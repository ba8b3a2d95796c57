// The answer forming: what the classifier would say if the model ended at a depth.

import { t } from '../../frontend/i18n.js';
import { bounds, scored } from '../../frontend/numbers.js';
import { still } from '../../frontend/shared_scale.js';
import { drawChart } from './account.js';
import { asked, className, shown, signed } from './lines.js';

export function drawForming(self, made) {
  const size = self.zoom;
  const tall = Math.max(160 * size, Math.min(380 * size, (self.deep || 420) - 210 * size));
  const afresh = t(
    'The final norm is recomputed at every layer; early layers were never trained to be read this way.',
  );
  drawChart(self, made, tall, `${afresh} ${soFar(self)}`, self.settings.depth);
  made.shares.node.hidden = true;
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
    'At the final norm scale, the contributions after {depth} layers sum to {share} of {logit}.',
    told,
  );
}

/** Whether every patch has an answer of its own here; its numbers are then asked for. */
export const forming = (self) =>
  shown(self) === 'forming' && ['reading', 'probe'].includes(self.summary.patches);

/** Every patch's own answer as a map, its three best under the pointer. */
export function ownAnswers(self, name) {
  const { own } = self.data;
  const { depth } = self.settings;
  const { head_type } = self.value;
  const [least, largest] = bounds(own.values.filter(Number.isFinite));
  const from = head_type === 'value' ? least : 0;
  const [low, high] = still(self, `own/${asked(self)}`, from, largest);
  const label =
    head_type === 'value'
      ? t('Value of {name}, read from the patch alone', { name })
      : t('Probability of {name}, read from the patch alone', { name });
  return {
    values: own.values,
    low,
    high: high > low ? high : low + 1,
    colours: 'viridis',
    label,
    title: t('Prediction of each patch after {depth} layers', { depth }),
    said: (cell) => scored(own.values[cell], head_type),
  };
}

/** The best answers of one patch, likeliest first; none where the patch was left out. */
export function bestOf(self, cell) {
  const [, , ranks] = self.data.best.shape;
  return Array.from({ length: ranks }, (_, rank) => {
    const start = 2 * (cell * ranks + rank);
    const [index, share] = self.data.best.values.subarray(start, start + 2);
    const { head_type } = self.value;
    const none = head_type === 'value' ? Number.isNaN(share) : share < 0;
    return none ? '' : `${t(className(self, index))} ${scored(share, head_type)}`;
  }).filter(Boolean);
}

/** What such an answer is worth: a reading, a probe, or why there is none. */
export function worth(self) {
  const { patches } = self.summary;
  if (patches === 'probe') return t('A probe: the classifier was never trained to read a single patch.');
  if (patches === 'reading') return t('A reading: the classifier reads the mean of these patches.');
  return t(patches);
}
