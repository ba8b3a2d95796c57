// The header's switch of languages: each one named in itself.

import { el, whenChanged } from '../../frontend/elements.js';

const NAMES = { en: 'English', 'zh-CN': '中文', ko: '한국어' };

/**
 * In the same entry of the browser's history, which keeps what is seen, a photograph of one's own too. The
 * page is loaded again because Gradio, told in place, leaves the tabs that are not open as they were.
 */
function go(tag) {
  const url = new URL(window.location.href);
  url.searchParams.set('lang', tag);
  window.history.replaceState(window.history.state, '', url);
  window.location.reload();
}

export default function part(element) {
  const root = element.querySelector('.vv-language');
  const now = navigator.language;
  const turn = (tag) => (event) => {
    event.preventDefault();
    go(tag);
  };
  const link = ([tag, text]) => {
    const current = tag === now ? 'true' : null;
    const to = { href: `?lang=${tag}`, lang: tag, hreflang: tag, onclick: turn(tag) };
    return el('a', { ...to, text, 'aria-current': current });
  };
  root.hidden = false;
  root.removeAttribute('role');
  root.replaceChildren(
    el('nav', { 'aria-label': 'Language / 语言 / 언어' }, ...Object.entries(NAMES).map(link)),
  );
  const follow = () => {
    // Gradio's own settings, in the footer, changed its language: ours follows
    const chosen = document.documentElement.lang;
    if (chosen !== now && Object.hasOwn(NAMES, chosen)) go(chosen);
  };
  whenChanged(document.documentElement, ['lang'], follow, false);
}
