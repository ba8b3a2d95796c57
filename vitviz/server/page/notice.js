// An error message beside the action: what failed, why, and what to do. Text only, never HTML.

import { button, el, marked, seek } from '../../frontend/elements.js';
import { listen } from '../../frontend/events.js';
import { t } from '../../frontend/i18n.js';

export default function part(element, props, watch) {
  const root = element.querySelector('.vv-notice');

  function show(value = props.value) {
    const text = value?.text ? t(value) : '';
    root.hidden = !text;
    if (text) marked(document.documentElement, 'opened', true);
    root.replaceChildren(
      el('span', { class: 'vv-notice-text', text }),
      button('×', () => (root.hidden = true), { 'aria-label': t('Dismiss') }),
    );
  }

  function update(value = props.value) {
    show(value);
    if (root.hidden) return;
    // The action may be a screen away, and the message is at the top of the scrolled page.
    root.style.scrollMarginTop = `${seek('#vitviz-facts')?.offsetHeight ?? 0}px`;
    root.scrollIntoView({ block: 'nearest' });
  }

  listen('notice', update);
  watch('value', () => update());
  show();
}
