// The header's switch of languages: each one named in itself.
const { el, language } = window.vitviz;
const root = element.querySelector('.vv-language');
const turn = (tag) => (event) => { event.preventDefault(); language.go(tag); };

root.hidden = false;
root.removeAttribute('role');
root.replaceChildren(el('nav', { 'aria-label': 'Language / 语言 / 언어' }, ...Object.entries(language.names).map(([tag, name]) =>
  el('a', { href: `?lang=${tag}`, lang: tag, hreflang: tag, text: name, 'aria-current': tag === language.tag ? 'true' : null, onclick: turn(tag) }))));
