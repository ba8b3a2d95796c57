// Numbers: bounds, sums and formatting.

export function bounds(values, start = 0, stop = values.length) {
  let low = Infinity;
  let high = -Infinity;
  for (let i = start; i < stop; i++) {
    const v = values[i];
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return low <= high ? [low, high] : [0, 0];
}

export function total(values, start = 0, stop = values.length) {
  let sum = 0;
  // dropped patches have no number
  for (let i = start; i < stop; i++) if (!Number.isNaN(values[i])) sum += values[i];
  return sum;
}

/** A power of ten to append to a number: " · 10⁻⁶". */
export const tenTo = (power) =>
  ` · 10${String(power)
    .replace('-', '⁻')
    .replace(/\d/g, (digit) => '⁰¹²³⁴⁵⁶⁷⁸⁹'[digit])}`;

/** Formats a number with `digits` significant digits and a real minus sign. */
export function number(value, digits = 3) {
  if (!Number.isFinite(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  const [head, power] = (
    size >= 10 ** digits
      ? value.toFixed(0)
      : size < 1e-4
        ? value.toExponential(digits - 1)
        : String(Number(value.toPrecision(digits)))
  ).split('e');
  return head.replace('-', '−') + (power ? tenTo(Number(power)) : '');
}

export const percent = (share, places = 1) => `${(100 * share).toFixed(places)} %`;

/** Formats an output: its probability in per cent, or a regression value as it is. */
export const scored = (score, headType, places = 1) =>
  headType === 'value' ? number(score) : percent(score, places);

/** Formats a number with fixed decimals and a real minus sign; zero has no sign. */
export const fixed = (value, digits) =>
  value
    .toFixed(digits)
    .replace(/^-(?=[0.]+$)/, '')
    .replace('-', '−');

/** About `count` round numbers within low..high. */
export function ticks(low, high, count = 5) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 2.5, 5].find((m) => m * power >= rough * 0.999) ?? 10) * power;
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) out.push(i * step);
  return out;
}
