// The lessons that this site offers, and what one that has been opened says of the views' settings.

import { button, div, el } from '../../canvas/elements.js';
import { put } from '../../canvas/memory.js';
import { t } from '../../canvas/words.js';
import { listen } from './handing.js';
import { questions } from './questions.js';

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-lessons');
  const question = questions(trigger, 'learn');
  let last = 0;

  function show() {
    const { offered = [], taken } = props.value || {};
    const lesson = (name) => button(name, () => question.ask({ name }), { title: name });
    root.hidden = !offered.length;
    root.replaceChildren(el('h2', { text: t('Lessons') }), div('vv-lessons-list', ...offered.map(lesson)));
    if (!taken || taken.number === last) return;
    last = taken.number;
    put(taken.settings, taken);
  }

  root.setAttribute('role', 'group');
  root.setAttribute('aria-label', t('Lessons'));
  listen();
  watch('value', show);
  show();
}
