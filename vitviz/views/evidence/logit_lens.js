// Logit lens: the classifier's output if the model ended at a depth.

import { t } from '../../frontend/i18n.js';
import { bounds, scored } from '../../frontend/numbers.js';
import { still } from '../../frontend/shared_scale.js';
import { drawChart } from './account.js';
import { asked, className, roomBeside, shown, signed } from './lines.js';

export function drawForming(self, made) {
  const size = self.zoom;
  const tall = Math.max(160 * size, Math.min(380 * size, roomBeside(self, 420) - 210 * size));
  const afresh = t(
    'The final norm is recomputed at every layer; early layers were never trained to be read this way.',
  );
  drawChart(self, made, tall, `${afresh} ${soFar(self)}`, self.settings.depth);
  made.shares.node.hidden = true;
}

/** The second, additive reading: contributions so far, at the scale of the final norm. */
function soFar(self) {
  const { values } = self.data.share;
  const told = {
    depth: self.settings.depth,
    share: signed(values[self.settings.depth]),
    logit: signed(values.at(-1)),
  };
  return t(
    'With the final norm’s scale held fixed, the contributions of the first {depth} layers sum ' +
      'to {share}; all layers sum to {logit}.',
    told,
  );
}

/** True if every patch has a prediction of its own, whose numbers are then requested. */
export const forming = (self) =>
  shown(self) === 'forming' && ['reading', 'probe'].includes(self.summary.patches);

/** Each patch's own prediction as a map; the tooltip shows the three most likely classes. */
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

/** The most likely classes of one patch, in order; [] for a dropped patch. */
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

/** Explains the patch predictions: a reading, a probe, or the reason why there are none. */
export function worth(self) {
  const { patches } = self.summary;
  if (patches === 'probe')
    return t('Interpret with care: the classifier was never trained to read single patches.');
  if (patches === 'reading')
    return t('The classifier reads the mean of these patches, so each patch has a prediction of its own.');
  return t(patches);
}
