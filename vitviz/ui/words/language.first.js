// Chooses the language: the address's `lang`, else the first of the browser's that we speak. Gradio reads
// navigator.language and nothing else, so that is where the choice is put: one language for its texts and
// ours.
(() => {
  const spoken = new Map([
    ['zh', 'zh-CN'],
    ['ko', 'ko'],
    ['en', 'en'],
  ]); // any Chinese gets the one that there is
  const ours = (tag) =>
    spoken.get(
      String(tag || '')
        .toLowerCase()
        .split(/[-_]/)[0],
    );
  const tag =
    [new URLSearchParams(window.location.search).get('lang'), ...navigator.languages]
      .map(ours)
      .find(Boolean) || 'en';
  Object.defineProperty(navigator, 'language', { get: () => tag, configurable: true });
  Object.defineProperty(navigator, 'languages', { get: () => [tag], configurable: true });
  document.documentElement.lang = tag;
})();
