// Transfers settings to another image, grid or model, and formats them.

import { patchName, t, tokenName } from './i18n.js';
import { number } from './numbers.js';

/**
 * The tokens of a setting as relative positions, which apply to another model too: a prefix token's name, or
 * fractions of height and width. Likewise for layers: a range as fractions of the depth, one layer as a
 * fraction of the way from the first to the last.
 */
export function placesOf(control, value, grid, { layers }) {
  const text = String(value ?? '');
  const ends = control.kind === 'layers' ? text.split('-').map(Number) : [];
  if (ends.length === 2) return [(ends[0] - 1) / layers, ends[1] / layers];
  if (control.name === 'layer' && value >= 1) return [layers > 1 ? (value - 1) / (layers - 1) : 0];
  const skip = control.kind === 'query' ? grid.prefix.length : 0;
  if (!(control.tokens || control.kind === 'query') || !/^\d+(\.\d+)*$/.test(text)) return null;
  return text.split('.').map((number) => {
    const token = Number(number) + skip;
    const patch = token - grid.prefix.length;
    return patch < 0
      ? grid.prefix[token]
      : [(Math.floor(patch / grid.cols) + 0.5) / grid.rows, ((patch % grid.cols) + 0.5) / grid.cols];
  });
}

/** The setting for relative positions on a grid; undefined if the grid has none of them. */
export function tokensAt(control, places, grid, { layers }) {
  if (control.kind === 'layers') {
    const first = Math.min(layers, Math.floor(places[0] * layers + 1e-9) + 1);
    return `${first}-${Math.max(first, Math.ceil(places[1] * layers - 1e-9))}`;
  }
  if (control.name === 'layer') return 1 + Math.round(places[0] * (layers - 1));
  const token = (place) =>
    typeof place === 'string'
      ? grid.prefix.indexOf(place)
      : grid.prefix.length + Math.floor(place[0] * grid.rows) * grid.cols + Math.floor(place[1] * grid.cols);
  const tokens = places.map(token).filter((one) => one >= 0);
  if (!tokens.length) return undefined;
  if (control.kind === 'query') return String(tokens[0] - grid.prefix.length);
  return typeof control.default === 'number' ? tokens[0] : tokens.join('.');
}

/** The setting if valid for this image and model, else the default. */
export function sane(control, value, about) {
  const { kind, minimum, maximum } = control;
  if (value === undefined || value === null) return control.default;
  const [text, number] = [String(value), Number(value)];
  const within = number >= minimum && number <= maximum;
  if (kind === 'slider') {
    const whole = !Number.isInteger(control.step) || Number.isInteger(number);
    const fits = typeof value !== 'string' || (whole && within && /^-?\d/.test(value));
    if (Number.isNaN(number) || !fits) return control.default; // strings come from an address
    // numbers may come from a larger model
    return Math.min(maximum, Math.max(minimum, number));
  }
  if (kind === 'whole') return Number.isInteger(number) && within ? number : control.default;
  if (kind === 'layers') {
    const [first, last] = text.split('-').map(Number);
    const all = first === 1 && last === about.layers;
    return first >= 1 && last >= first && last <= about.layers && !all ? text : '';
  }
  const { rows, cols, prefix } = about.grid;
  const token = (one) => /^\d+$/.test(one) && Number(one) <= maximum;
  const unknown = (one) => control.classes !== null && Number(one) >= control.classes; // of another model
  const fits = {
    choice: () => control.options.some(([name]) => name === value),
    query: () => (/^\d+$/.test(value) ? number < rows * cols : ['auto', 'mean', ...prefix].includes(value)),
    wholes: () => !text || (text.split('.').length <= control.most && text.split('.').every(token)),
    text: () => new RegExp(`^(?:${control.fits})$`).test(text) && !text.split('-').some(unknown),
  }[kind];
  return fits?.() ? text : control.default;
}

/** Text of a setting in a caption. */
export function spoken(control, value, about) {
  if (control.kind === 'choice')
    return t(control.options.find(([name]) => name === value)?.[1] ?? String(value));
  if (control.kind === 'layers') return (value || `1-${about.layers}`).replace('-', '–');
  if (control.kind === 'query' && /^\d+$/.test(value)) return patchName(Number(value));
  if (control.kind === 'query') return { auto: t('Auto'), mean: t('Mean') }[value] ?? tokenName(value);
  return number(Number(value));
}
