// What the account says: its lines summed, the classes by name, what is chosen of it.

import { t } from '../../frontend/i18n.js';
import { fixed, number, total } from '../../frontend/numbers.js';
import { differs } from '../../frontend/shared_scale.js';

/** Patches out of a setting. */
export const listed = (text) => (text ? text.split('.').map(Number) : []);

/** The head, or the layer's heads, that are in view: numbers from 1; [] for all. */
export const chosenOf = (self) => (self.settings.chosen ? self.settings.chosen.split('.').map(Number) : []);

/** All lines of the account, summed into what a reader is told. */
export function sums(self) {
  const { lines, sources, mlps, biases } = self.data;
  const [start, pooling, normBias, headBias, logit, sum, norm] = lines.values;
  return {
    start,
    pooling,
    logit,
    sum,
    norm,
    patches: sources.values[0],
    prefix: Array.from(sources.values.slice(1)),
    mlps: total(mlps.values),
    biases: total(biases.values) + normBias + headBias,
  };
}

/** A class by its number, as the visitor reads it. */
export function className(self, index) {
  const known = self.ui.classes?.find((one) => one.class === index);
  return known?.name ?? self.ui.labels?.[index] ?? t('class {number}', { number: index });
}

/** The class that is asked about, and the one rather than which; null for all others. */
export function targets(self) {
  const asked =
    self.settings.target === 'top' ? [self.summary.top[0]] : self.settings.target.split('-').map(Number);
  return { of: asked[0], rather: asked[1] ?? null };
}

/** A number with its sign: +2.03 or −0.56. */
export const signed = (value) =>
  Number.isNaN(value) ? '–' : (value >= 0 ? '+' : '−') + Math.abs(value).toFixed(2);

/** A number as it stands in a sum: 5.51, then "− 0.07". */
export const added = (value, place) =>
  (value < 0 ? (place ? '− ' : '−') : place ? '+ ' : '') + Math.abs(value).toFixed(2);

/** How far a scale goes to both sides of zero: ±0.30. */
export const either = (value) => `±${value.toFixed(2)}`;

/** The same of a head of values. */
function valueName(self) {
  if (targets(self).rather !== null)
    return differs(self) ? t('change of the difference of values') : t('difference of values');
  return differs(self) ? t('change of the value') : t('value');
}

/** What the account adds up to, by name: one class's logit, or by how much one's lies above another's. */
export function sumName(self) {
  if (self.value.head_type === 'value') return valueName(self);
  if (targets(self).rather !== null)
    return differs(self) ? t('change of the difference of logits') : t('difference of logits');
  return differs(self) ? t('change of the logit') : t('logit');
}

/** The sum beside what it should be, by name. */
export function balanced(self, sum, logit) {
  const alone = targets(self).rather === null;
  const change = alone ? t('Change of the logit') : t('Change of the difference of logits');
  const logit_ = differs(self) ? change : alone ? t('Logit') : t('Difference of logits');
  const valued = valueName(self);
  const value = valued[0].toUpperCase() + valued.slice(1);
  const name = self.value.head_type === 'value' ? value : logit_;
  return `${name}: ${t('{sum} of {logit}', { sum: fixed(sum, 3), logit: fixed(logit, 3) })}`;
}

/** The cosine that a logit of given classes is made of; two have the bias in common. */
export function ofCosine(self, logit) {
  const { scale, bias } = self.summary;
  if (!scale || differs(self) || self.settings.relative === 'yes') return '';
  const alone = targets(self).rather === null;
  const rest = alone ? bias : 0;
  const name = alone ? t('cosine') : t('difference of cosines');
  const cosine = fixed((logit - rest) / scale, 4);
  return [`= ${number(scale)} × ${name} ${cosine} `, ...(rest ? [`${added(rest, 1)} `] : [])].join('');
}

/** What stands beside the map: of a difference the account. */
export const shown = (self) => (differs(self) ? 'account' : self.settings.show);

/**
 * The name of what the account explains: scales stay the same as long as it does. While a training history
 * plays, the likeliest class of its first step stays explained.
 */
export function asked(self) {
  const { target, relative } = self.settings;
  return `${target === self.value.still?.target ? 'top' : target}/${relative}/${differs(self)}`;
}
