// The page's language: an English text is the key of its translation, in the chosen language's module.

/** The chosen language as the server knows it; ui/words/first.js put it there. */
export const spokenTag = () => (['zh-CN', 'ko'].includes(navigator.language) ? navigator.language : 'en');

const texts = (await import(`../ui/words/${spokenTag()}.js`)).default;
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
const word = (value) =>
  value !== null && typeof value === 'object' ? t(value.text, value.values) : t(String(value));

/** @typedef {{text: string, values?: Record<string, any>}} Sentence */
