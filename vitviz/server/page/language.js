// The language switch in the header; each language is named in itself.

import { el, whenChanged } from '../../frontend/elements.js';

const NAMES = { en: 'English', 'zh-CN': '中文', ko: '한국어' };

/**
 * Reloads the page in another language. The browser's history entry stays, and with it the state and the
 * visitor's own image. A reload is needed because Gradio, switched in place, does not translate closed tabs.
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
    // the language was changed in Gradio's own settings, in the footer
    const chosen = document.documentElement.lang;
    if (chosen !== now && Object.hasOwn(NAMES, chosen)) go(chosen);
  };
  whenChanged(document.documentElement, ['lang'], follow, false);
}
