// The samples as thumbnails: the featured ones, and the others behind a button. A sample that this checkpoint
// is known to misclassify has a button that explains the prediction.

import { address } from '../../frontend/data.js';
import { button, div, el, span } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { open } from '../../frontend/view_state.js';

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-samples');
  let whole = false; // True after the others were asked for

  const choose = (name) => () => trigger('choose', { name });

  function explain(name) {
    if (props.value.chosen !== name) trigger('choose', { name });
    open('evidence', { show: 'account', method: 'ledger', target: 'top' });
  }

  function tile([name, shows, mistake]) {
    const image = el('img', { src: address(`sample/${name}`), alt: '' });
    const pressed = String(props.value.chosen === name);
    const told = { class: 'thumbnail-item', 'data-name': name, 'aria-pressed': pressed };
    const thumb = button('', choose(name), told, image, span(t(shows)));
    const why = mistake && button(t('known mistake'), () => explain(name), { class: 'vv-mistake' });
    return div('vv-sample', thumb, why);
  }

  function show() {
    const { samples = [], featured, chosen } = props.value || {};
    root.hidden = !samples.length;
    const all = whole || samples.findIndex(([name]) => name === chosen) >= featured;
    const focused = root.querySelector('[data-name]:focus')?.dataset.name;
    const more = () => {
      whole = true;
      show();
      root.children[featured].firstChild.focus();
    };
    root.replaceChildren(
      ...samples.slice(0, all ? undefined : featured).map(tile),
      ...(all ? [] : [button(t('More images'), more, { class: 'vv-more-samples' })]),
    );
    if (focused) root.querySelector(`[data-name=${focused}]`)?.focus();
  }

  root.setAttribute('role', 'group');
  root.setAttribute('aria-label', t('Samples'));
  watch('value', show);
  show();
}
