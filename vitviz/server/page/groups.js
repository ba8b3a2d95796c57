// The row of groups above the tabs: each button opens the first view of its group. CSS from build.py selects
// the tabs shown for a group. The first visit shows a three-step introduction, once: its button, Escape or a
// click outside skips it.

import { button, div, el, whenChanged } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { open } from '../../frontend/view_state.js';

const SEEN = 'vitviz-welcomed';

/** True on a visit without a link or a presentation, in a browser without a record of an earlier visit. */
function first() {
  const names = [...new URLSearchParams(window.location.search).keys()];
  if (names.some((name) => name !== 'lang' && !name.startsWith('__'))) return false;
  try {
    if (localStorage.getItem(SEEN)) return false;
    localStorage.setItem(SEEN, '1');
    return true;
  } catch {
    return false; // without storage the introduction would appear on every visit
  }
}

function welcome() {
  if (!first()) return;
  /** @type {[string, string, string][]} what is framed, a title, a sentence */
  const steps = [
    [
      '#vitviz-stage, #vitviz-facts .vv-answers',
      t('An image and its prediction'),
      t('The prediction stays next to its image in every view. Choose another image or upload your own.'),
    ],
    [
      '#vitviz-groups, #vitviz-tabs > .tab-wrapper',
      t('Six questions'),
      t('Each opens the views that answer it, computed for this image.'),
    ],
    [
      '.vv-overview',
      t('Start here'),
      t('The model at a glance, from image to prediction. Click a part for details.'),
    ],
  ];
  let at = -1;
  const hole = div('vv-hole');
  const title = el('p', {});
  const said = el('p', {});
  const count = el('span', {});
  const skip = button(t('Skip'), () => node.close());
  const next = button('', turn, { autofocus: true });
  const card = div('vv-welcome-card', title, said, el('div', {}, count, skip, next));
  const node = el('dialog', { class: 'vv-welcome', 'aria-label': t('Welcome') }, hole, card);

  /** Frames the elements of the current step, following their position. */
  function frame() {
    if (!node.isConnected) return;
    const boxes = [...document.querySelectorAll(steps[at][0])].map((one) => one.getBoundingClientRect());
    const seen = boxes.filter(({ width }) => width);
    const [left, top, right, bottom] = [
      Math.min(...seen.map((box) => box.left)),
      Math.min(...seen.map((box) => box.top)),
      Math.max(...seen.map((box) => box.right)),
      Math.max(...seen.map((box) => box.bottom)),
    ];
    hole.style.cssText = seen.length
      ? `left:${left - 4}px;top:${top - 4}px;width:${right - left + 8}px;height:${bottom - top + 8}px`
      : '';
    requestAnimationFrame(frame);
  }

  function turn() {
    at += 1;
    if (at === steps.length) return node.close();
    [, title.textContent, said.textContent] = steps[at];
    count.textContent = `${at + 1} / ${steps.length}`;
    skip.hidden = at === steps.length - 1;
    next.textContent = skip.hidden ? t('Begin') : t('Continue');
  }

  node.addEventListener('close', () => node.remove());
  node.addEventListener('click', ({ target }) => target === node && node.close());
  open('tour');
  turn();
  document.querySelector('.gradio-container')?.append(node);
  node.showModal();
  frame();
}

export default function part(element, props) {
  const root = element.querySelector('.vv-groups');
  const page = document.documentElement;
  let last = null;
  const groups = props.value.groups.map(([name, slugs]) => ({
    slugs,
    node: button(t(name), () => open(slugs[0])),
  }));

  /** Marks the open group. */
  function light() {
    const chosen = document.querySelector('#vitviz-tabs [role=tab][aria-selected=true]');
    const [, tab = ''] = chosen?.id.match(/^vitviz-tab-(.+)-button$/) || [];
    if (tab === last) return;
    last = page.dataset.tab = tab; // used by the style sheet
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
