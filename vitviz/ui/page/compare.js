// A second checkpoint beside the first: what lies nearest is offered under the picker, the rest is a click
// away.

import { el } from '../../canvas/elements.js';
import { offering } from '../../canvas/leads.js';
import { t } from '../../canvas/words.js';
import { questions } from './questions.js';

const field = () => /** @type {HTMLElement | null} */ (document.querySelector('#vitviz-second input'));

/** Goes to the field once its fold has opened. */
function focus(frames = 60) {
  if (field()?.getClientRects().length) field().focus();
  else if (frames) requestAnimationFrame(() => focus(frames - 1));
}

/** Opens the fold in which any other checkpoint can be chosen. */
function choose() {
  /** @type {HTMLElement | null} */
  const fold = document.querySelector('#vitviz-more button');
  if (!field()?.getClientRects().length) fold?.click();
  focus();
}

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-compare');
  const question = questions(trigger, 'compare');
  const button = el('button', { type: 'button', 'aria-expanded': 'false', onclick: () => unfold() });
  const offers = el('div', { class: 'vv-compare-offers', hidden: true });

  function unfold(open = offers.hidden) {
    offers.hidden = !open;
    button.setAttribute('aria-expanded', String(open));
  }

  const offer = (text, act) =>
    el('button', {
      type: 'button',
      text,
      onclick: () => {
        unfold(false);
        button.focus();
        act();
      },
    });

  function show() {
    const { second, before, twins } = props.value || {};
    offering(twins ?? [], (pair) => question.ask({ pair }));
    root.hidden = !props.value?.shown;
    button.textContent = second ? t('Beside it: {checkpoint}', { checkpoint: second }) : t('Compare');
    offers.replaceChildren(
      ...[
        before && offer(t('Before and after its training'), () => question.ask({ pair: before })),
        offer(t('With another checkpoint …'), choose),
        second && offer(t('Compare no longer'), () => question.ask({ pair: '' })),
      ].filter(Boolean),
    );
  }

  root.removeAttribute('role');
  root.replaceChildren(button, offers);
  root.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || offers.hidden) return;
    unfold(false);
    button.focus();
  });
  document.addEventListener('pointerdown', (event) => {
    if (!root.contains(event.target)) unfold(false);
  });
  watch('value', show);
  show();
}
