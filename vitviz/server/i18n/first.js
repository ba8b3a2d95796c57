// Stands before all of Gradio's scripts.

// Chooses the language: the address's `lang`, else the first of the browser's that we speak. Gradio reads
// navigator.language and nothing else, so that is where the choice is put: one language for its texts and
// ours.
(() => {
  const spoken = { zh: 'zh-CN', ko: 'ko', en: 'en' }; // any Chinese gets the one that there is
  const ours = (tag) => spoken[/^(?:zh|ko|en)(?![^-_])/i.exec(tag || '')?.[0].toLowerCase()];
  const tag =
    [new URLSearchParams(window.location.search).get('lang'), ...navigator.languages]
      .map(ours)
      .find(Boolean) || 'en';
  Object.defineProperty(navigator, 'language', { get: () => tag, configurable: true });
  Object.defineProperty(navigator, 'languages', { get: () => [tag], configurable: true });
  document.documentElement.lang = tag;
  // Until there is an answer or a notice the page says what it waits for, from its first moment on.
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

// Gradio's sign that a page is being opened counts seconds by animation frames, and goes on when it is gone:
// sixty times a second, as long as the page is open, the browser would look what is to be drawn anew. What
// began to count before there was a page ends once there is one.
(() => {
  const own = window.requestAnimationFrame;
  let counting = false; // whether it is such a sign that asks for another frame
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
