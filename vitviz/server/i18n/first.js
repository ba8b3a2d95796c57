// Runs before all of Gradio's scripts.

// Chooses the language: the address's `lang`, else the first supported language of the browser. Gradio reads
// only navigator.language, so the choice is stored there: one language for Gradio's texts and ours.
(() => {
  const spoken = { zh: 'zh-CN', ko: 'ko', en: 'en' }; // every Chinese tag gets the one available
  const ours = (tag) => spoken[/^(?:zh|ko|en)(?![^-_])/i.exec(tag || '')?.[0].toLowerCase()];
  const tag =
    [new URLSearchParams(window.location.search).get('lang'), ...navigator.languages]
      .map(ours)
      .find(Boolean) || 'en';
  Object.defineProperty(navigator, 'language', { get: () => tag, configurable: true });
  Object.defineProperty(navigator, 'languages', { get: () => [tag], configurable: true });
  document.documentElement.lang = tag;
  // Until a prediction or a message is shown, the page shows what it is waiting for.
  const opening = {
    'zh-CN': '正在加载 vitviz …',
    ko: 'vitviz를 불러오는 중 …',
    en: 'Loading vitviz …',
  };
  const style = document.createElement('style');
  style.textContent = `html:not([data-opened]) > body::before {
    content: '${opening[tag]}'; position: fixed; z-index: 99; inset: 42% 0 auto; margin: auto; padding: 14px;
    width: fit-content; color-scheme: light dark; color: CanvasText; background: Canvas;
    font: 16px system-ui, sans-serif; border-radius: 8px; }`;
  document.head.append(style);
})();

// Gradio's loading indicator counts seconds with animation frames and continues after it is removed: as long
// as the page is open, the browser would check sixty times a second what to redraw. Counters that started
// before the page existed are stopped once the page exists.
(() => {
  const own = window.requestAnimationFrame;
  let counting = false; // True while such an indicator requests its next frame
  window.requestAnimationFrame = (run) => {
    const late = document.querySelector('#vitviz-page');
    if (!String(run).includes('performance.now()') || (late && !counting)) return own.call(window, run);
    if (late) return 0;
    return own.call(window, (at) => {
      counting = true;
      try {
        run(at);
      } finally {
        counting = false;
      }
    });
  };
})();
