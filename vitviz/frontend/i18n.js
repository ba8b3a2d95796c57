// The page's language: an English text is the key of its translation in the selected language's module. Also
// names patches, tokens and a visitor's images.

/** The selected language as the server names it; set by server/i18n/first.js. */
export const spokenTag = () => (['zh-CN', 'ko'].includes(navigator.language) ? navigator.language : 'en');

const texts = (await import(`../server/i18n/${spokenTag()}.js`)).default;
let written = []; // class names written by the visitor, which may equal words of the page

/** These words are not translated from now on. */
export const asWritten = (words) => (written = words);

/**
 * A text in the page's language. {names} are filled with values. A value, or the text itself, may be a
 * sentence from the server: {text, values}.
 * @param {string | Sentence} text
 * @param {Record<string, any>} [values]
 * @returns {string}
 */
export function t(text, values) {
  if (typeof text === 'object') return t(text.text, text.values);
  const found = (!written.includes(text) && texts[text]) || text;
  return values
    ? found.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? word(values[name]) : whole))
    : found;
}

/** A value of a sentence: a sentence itself, or a known word such as a class of the shipped checkpoint. */
const word = (value) => t(value?.text === undefined ? String(value) : value);

/** @typedef {{text: string, values?: Record<string, any>}} Sentence */

export const patchName = (patch) => t('Patch {number}', { number: patch + 1 });

/** The displayed name of a prefix token. */
export function tokenName(name) {
  const numbered = /^register (\d+)$/.exec(name);
  const said = numbered ? t('register {number}', { number: numbered[1] }) : t(name);
  return said.charAt(0).toUpperCase() + said.slice(1);
}

export function placeName(grid, patch) {
  return t('row {row}, column {col}', {
    row: Math.floor(patch / grid.cols) + 1,
    col: (patch % grid.cols) + 1,
  });
}

/** The name of a token at a position of the sequence; patches with row and column. */
export function nameOf({ grid }, token) {
  const patch = token - grid.prefix.length;
  return patch < 0 ? tokenName(grid.prefix[token]) : `${patchName(patch)} (${placeName(grid, patch)})`;
}

/** Text that says over how many images of a set a figure averages. */
export function ofASet(count) {
  return count === 1 ? t('Based on a set of one image.') : t('Based on a set of {count} images.', { count });
}
