// The row of groups above the tabs: each button opens the first view of its group. CSS from build.py selects
// the tabs shown for a group. A page opened without a link begins with the first screen of Attention.

import { button, el, whenChanged } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { open } from '../../frontend/view_state.js';

/** True if the address asks for nothing: no view, image, model or setting. */
function first() {
  const names = [...new URLSearchParams(window.location.search).keys()];
  return names.every((name) => name === 'lang' || name.startsWith('__'));
}

export default function part(element, props) {
  const root = element.querySelector('.vv-groups');
  const page = document.documentElement;
  let last = '-'; // no tab
  const groups = props.value.groups.map(([name, slugs]) => ({
    slugs,
    node: button(t(name), () => open(slugs[0])),
  }));

  /** Marks the open group. */
  function light() {
    const chosen = document.querySelector('#vitviz-tabs [role=tab][aria-selected=true]');
    const [, tab = ''] = chosen?.id.match(/^vitviz-tab-(.+)-button$/) || [];
    if (tab === last) return;
    if (last === 'explorer') delete page.dataset.opening;
    last = page.dataset.tab = tab; // used by the style sheet
    for (const { slugs, node } of groups) {
      if (slugs.includes(tab)) node.setAttribute('aria-current', 'true');
      else node.removeAttribute('aria-current');
    }
  }

  root.hidden = false;
  root.removeAttribute('role');
  root.replaceChildren(el('nav', { 'aria-label': t('View groups') }, ...groups.map(({ node }) => node)));
  whenChanged(document.body, ['aria-selected', 'data-ready'], light);
  light();
  if (!first()) return;
  page.dataset.opening = '';
  open('explorer');
}
