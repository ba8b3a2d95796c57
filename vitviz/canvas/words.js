// The page's language: an English text is the key of its translation, in the module of the language that was
// chosen.

const tag = navigator.language; // language.first.js put the chosen one there
const texts = (await import(`../ui/words/${['zh-CN', 'ko'].includes(tag) ? tag : 'en'}.js`)).default;

/**
 * A text in the page's language. {names} are filled with values; a value, or the text itself, may be a
 * sentence that travelled from the server as {text, values}.
 * @param {string | Sentence} text
 * @param {Record<string, any>} [values]
 * @returns {string}
 */
export function t(text, values) {
  if (typeof text === 'object') return t(text.text, text.values);
  const found = texts[text] ?? text;
  return values
    ? found.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? word(values[name]) : whole))
    : found;
}

const word = (value) =>
  value !== null && typeof value === 'object' ? t(value.text, value.values) : String(value);

/** @typedef {{text: string, values?: Record<string, any>}} Sentence */
