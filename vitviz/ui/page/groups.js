// The questions, in a row before the tabs: each opens the first of the views that answer it. Which tabs stand
// there then is the style's business (build.py).

import { button, el, whenChanged } from '../../canvas/elements.js';
import { open } from '../../canvas/memory.js';
import { t } from '../../canvas/words.js';
import { welcome } from './welcome.js';

export default function part(element, props) {
  const root = element.querySelector('.vv-groups');
  const page = document.documentElement;
  let last = null;
  const groups = props.value.groups.map(([name, slugs]) => ({
    slugs,
    node: button(t(name), () => open(slugs[0])),
  }));

  /** Says which of them is open. */
  function light() {
    const chosen = document.querySelector('#vitviz-tabs [role=tab][aria-selected=true]');
    const [, tab = ''] = chosen?.id.match(/^vitviz-tab-(.+)-button$/) || [];
    if (tab === last) return;
    last = page.dataset.tab = tab; // for the style
    for (const { slugs, node } of groups) {
      if (slugs.includes(tab)) node.setAttribute('aria-current', 'true');
      else node.removeAttribute('aria-current');
    }
  }

  root.hidden = false;
  root.removeAttribute('role');
  root.replaceChildren(el('nav', { 'aria-label': t('Questions') }, ...groups.map(({ node }) => node)));
  whenChanged(document.body, ['aria-selected', 'data-ready'], light);
  light();
  welcome();
}
