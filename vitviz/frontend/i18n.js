// The page's language: an English text is the key of its translation, in the chosen language's module; and
// what patches, tokens and a visitor's pictures are called in it.

/** The chosen language as the server knows it; server/i18n/first.js put it there. */
export const spokenTag = () => (['zh-CN', 'ko'].includes(navigator.language) ? navigator.language : 'en');

const texts = (await import(`../server/i18n/${spokenTag()}.js`)).default;
let written = []; // by the visitor, as words that the page has too

/** From now on these are said as they were written. */
export const asWritten = (words) => (written = words);

/**
 * A text in the page's language. {names} are filled with values; a value, or the text itself, may be a
 * sentence that travelled from the server as {text, values}.
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

/** A value of a sentence: itself one, or a word that is known, such as a class of the shipped checkpoint. */
const word = (value) => t(value?.text === undefined ? String(value) : value);

/** @typedef {{text: string, values?: Record<string, any>}} Sentence */

export const patchName = (patch) => t('Patch {number}', { number: patch + 1 });

/** A prefix token as a student reads it. */
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

/** A token by its place in the sequence, a patch with where it lies. */
export function nameOf({ grid }, token) {
  const patch = token - grid.prefix.length;
  return patch < 0 ? tokenName(grid.prefix[token]) : `${patchName(patch)} (${placeName(grid, patch)})`;
}

/** Over which pictures of the visitor's own something is. */
export function ofASet(count) {
  return count === 1 ? t('Based on a set of one image.') : t('Based on a set of {count} images.', { count });
}
