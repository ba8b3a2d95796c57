// The panel under the picker: a second checkpoint and the input size. Likely comparisons are offered above
// the fields.

import { button, div, marked, seek } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { offering } from '../../frontend/lesson_links.js';
import { questions } from './requests.js';

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-compare');
  const question = questions(trigger, 'compare');
  const fold = button('', () => unfold(), { 'aria-controls': 'vitviz-more' });
  const offers = div('vv-compare-offers');

  function unfold(open = offers.hidden) {
    offers.hidden = !open;
    fold.setAttribute('aria-expanded', String(open));
    marked(seek('#vitviz-left'), 'comparing', open);
  }

  function offer(text, pair) {
    const ask = () => {
      unfold(false);
      fold.focus();
      question.ask({ pair });
    };
    return button(text, ask);
  }

  function show() {
    const { second, before, twins } = props.value || {};
    offering(twins ?? [], (pair) => question.ask({ pair }));
    root.hidden = !props.value?.shown;
    fold.textContent = second
      ? t('Compared with: {checkpoint}', { checkpoint: second })
      : t('Comparison and input size');
    const nearest = [
      before && offer(t('Before and after training'), before),
      second && offer(t('Stop comparing'), ''),
    ];
    offers.replaceChildren(...nearest.filter(Boolean));
  }

  root.removeAttribute('role');
  root.replaceChildren(fold, offers);
  root.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || offers.hidden) return;
    unfold(false);
    fold.focus();
  });
  unfold(false);
  watch('value', show);
  show();
}
