// The texts of the language that language.first.js chose, and the switch to another.
(() => {
  'use strict';
  const { names, rows, patterns } = KNOWN;
  const tag = navigator.language;
  const place = Object.keys(names).indexOf(tag);
  const texts = Object.assign(Object.create(null), Object.fromEntries(place ? rows.map((row) => [row[0], row[place]]) : []));
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
