// Chooses the language before Gradio starts: the address's `lang`, else the first of the browser's that we speak.
// Gradio reads navigator.language and nothing else, so that is where the choice is put: one language for its texts and ours.
(() => {
  'use strict';
  const { names, rows, patterns } = KNOWN;
  const ours = (tag) => ({ zh: 'zh-CN', ko: 'ko', en: 'en' })[String(tag || '').toLowerCase().split(/[-_]/)[0]];
  const tag = [new URLSearchParams(window.location.search).get('lang'), ...navigator.languages].map(ours).find(Boolean) || 'en';
  Object.defineProperty(navigator, 'language', { get: () => tag, configurable: true });
  Object.defineProperty(navigator, 'languages', { get: () => [tag], configurable: true });
  document.documentElement.lang = tag;

  const place = Object.keys(names).indexOf(tag);
  const texts = Object.fromEntries(place ? rows.map((row) => [row[0], row[place]]) : []);
  const shapes = place ? patterns.map((english) => [new RegExp('^' + english.replace(/[.*+?^$()|[\]\\]/g, '\\$&').replace(/\{(\w+)\}/g, '(?<$1>.+?)') + '$', 's'), texts[english]]) : [];

  /** A sentence that came with its values already in it; undefined where it is none that we know. */
  function recognise(text) {
    for (const [shape, said] of shapes) {
      const found = said && shape.exec(text);
      if (found) return said.replace(/\{(\w+)\}/g, (whole, name) => (name in found.groups ? texts[found.groups[name]] || recognise(found.groups[name]) || found.groups[name] : whole));
    }
    return undefined;
  }

  function go(to) {
    const url = new URL(window.location.href);
    url.searchParams.set('lang', to);
    window.location.assign(url);
  }

  Object.assign(window.vitviz, { texts, recognise, language: { tag, names, go } });
  new MutationObserver(() => { // Gradio's own settings, in the footer, changed its language: ours follows
    const now = document.documentElement.lang;
    if (now !== tag && Object.hasOwn(names, now)) go(now);
  }).observe(document.documentElement, { attributes: true, attributeFilter: ['lang'] });
})();
