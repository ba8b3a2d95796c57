// Texts of the attribution: sums of contributions, names of classes, and the selection.

import { t } from '../../frontend/i18n.js';
import { fixed, number, total } from '../../frontend/numbers.js';
import { differs } from '../../frontend/shared_scale.js';

/** The height for the parts beside the map, which scroll where they are higher than the window. */
export const roomBeside = (self, otherwise) => {
  const apart = !self.ui.head.hidden;
  return apart ? Math.max(self.deep, 520 * self.zoom) : self.deep || otherwise;
};

/** Patches from a setting. */
export const listed = (text) => (text ? text.split('.').map(Number) : []);

/** The selected head or layer, [layer, head] or [layer], counted from 1; [] for all. */
export const chosenOf = (self) => (self.settings.chosen ? self.settings.chosen.split('.').map(Number) : []);

/** The selected heads, {layer, head}, counted from 1: one head, or all heads of a layer. */
export function chosenHeads(self) {
  const [layer, head] = chosenOf(self);
  const all = Array.from({ length: layer ? self.value.heads : 0 }, (_, h) => ({ layer, head: h + 1 }));
  return head ? [{ layer, head }] : all;
}

/** All contributions, summed into the terms that the page shows. */
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

/** The displayed name of a class. */
export function className(self, index) {
  const known = self.ui.classes?.find((one) => one.class === index);
  return known?.name ?? self.ui.labels?.[index] ?? t('class {number}', { number: index });
}

/** The explained class, and the class it is compared with; null for all others. */
export function targets(self) {
  const asked =
    self.settings.target === 'top' ? [self.summary.top[0]] : self.settings.target.split('-').map(Number);
  return { of: asked[0], rather: asked[1] ?? null };
}

/** A number with its sign: +2.03 or −0.56. */
export const signed = (value) =>
  Number.isNaN(value) ? '–' : (value >= 0 ? '+' : '−') + Math.abs(value).toFixed(2);

/** A number as a term of a sum: 5.51, then "− 0.07". */
export const added = (value, place) =>
  (value < 0 ? (place ? '− ' : '−') : place ? '+ ' : '') + Math.abs(value).toFixed(2);

/** Both ends of a symmetric scale: ±0.30. */
export const either = (value) => `±${value.toFixed(2)}`;

/** The name of the sum for a regression head. */
function valueName(self) {
  if (targets(self).rather !== null)
    return differs(self) ? t('change of the difference of values') : t('difference of values');
  return differs(self) ? t('change of the value') : t('value');
}

/** The name of the sum: one class's logit, or the difference of two. */
export function sumName(self) {
  if (self.value.head_type === 'value') return valueName(self);
  if (targets(self).rather !== null)
    return differs(self) ? t('change of the difference of logits') : t('difference of logits');
  return differs(self) ? t('change of the logit') : t('logit');
}

/** The sum of the contributions beside the model's own value, with its name. */
export function balanced(self, sum, logit) {
  const about = { sum: fixed(sum, 3), logit: fixed(logit, 3), name: sumName(self) };
  return about.sum === about.logit
    ? t('Contributions sum to {sum}, the {name}', about)
    : t('Contributions sum to {sum}; the {name} is {logit}', about);
}

/** A logit as scale × cosine + bias, for class vectors; in a difference of two classes the bias cancels. */
export function ofCosine(self, logit) {
  const { scale, bias } = self.summary;
  if (!scale || differs(self) || self.settings.relative === 'yes') return '';
  const alone = targets(self).rather === null;
  const rest = alone ? bias : 0;
  const name = alone ? t('cosine') : t('difference of cosines');
  const cosine = fixed((logit - rest) / scale, 4);
  return [`= ${number(scale)} × ${name} ${cosine} `, ...(rest ? [`${added(rest, 1)} `] : [])].join('');
}

/** The selected panel; a difference always shows direct logit attribution. */
export const shown = (self) => (differs(self) ? 'account' : self.settings.show);

/**
 * Key of the explained quantity; scales stay constant as long as the key does. During a training history, the
 * explained class is fixed to the most likely class of the first shown step.
 */
export function asked(self) {
  const { target, relative } = self.settings;
  return `${target === self.value.still?.target ? 'top' : target}/${relative}/${differs(self)}`;
}
