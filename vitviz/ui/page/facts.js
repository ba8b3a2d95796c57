// The answer of the model, and what it took to compute it.

import { el } from '../../canvas/elements.js';
import { awaiting } from '../../canvas/waiting.js';
import { t } from '../../canvas/words.js';

const PAUSE = 2000; // ms before what was not answered is asked for again
const LONGEST = 30000;

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-facts');

  function bar([label, probability]) {
    const percent = `${(100 * probability).toFixed(probability < 0.0995 ? 1 : 0)} %`;
    const fill = el('span', { class: 'vv-answer-bar' });
    fill.style.width = `${100 * probability}%`;
    return el(
      'li',
      {},
      el('span', { class: 'vv-answer-label', text: label }),
      el('span', { class: 'vv-answer-number', text: percent }),
      el('span', { class: 'vv-answer-track' }, fill),
    );
  }

  /** What the untouched model says, beside what it says with something taken away. */
  function before(top) {
    const answers = top
      .slice(0, 3)
      .map(([label, probability]) => `${label} ${(100 * probability).toFixed(1)} %`);
    const text = t('Before anything was taken away: {answers}', { answers: answers.join(', ') });
    return el('p', { class: 'vv-small vv-before', text });
  }

  let open = false; // until somebody opens it
  let wait = null;
  let pause = PAUSE;

  function show() {
    const value = props.value;
    pause = PAUSE;
    root.hidden = !value?.checkpoint;
    wait?.end();
    wait = value?.awaited ? awaiting(value.awaited) : null;
    if (root.hidden) return;
    if (value.asks) trigger('computed', {}); // for the rest of the page
    const took = { milliseconds: value.milliseconds, device: value.device };
    const cost = value.first
      ? t('{milliseconds} ms on {device}, the first pass', took)
      : t('{milliseconds} ms on {device}', took);
    const title = root.closest('#vitviz-second-facts')
      ? `${t('Prediction')} · ${value.checkpoint}`
      : t('Prediction');
    if (wait) return root.replaceChildren(el('h2', { text: title }), wait.node);
    root.replaceChildren(
      el('h2', { text: title }),
      value.top.length
        ? el('ol', { class: 'vv-answers', 'aria-label': t('Likeliest classes') }, ...value.top.map(bar))
        : el('p', { text: t('This checkpoint has no classifier, so there is no prediction.') }),
      ...(value.before ? [before(value.before)] : []),
      ...value.notes.map((note) => el('p', { class: 'vv-small', text: t(note) })),
      el(
        'details',
        {
          open,
          ontoggle: (event) => {
            open = event.currentTarget.open;
          },
        },
        el('summary', { text: cost }),
        el(
          'dl',
          {},
          ...value.shapes.flatMap(([name, shape]) => [
            el('dt', { text: t(name) }),
            el('dd', { text: t(shape) }),
          ]),
        ),
      ),
    );
    root.dataset.checkpoint = value.checkpoint;
  }

  // A full queue takes no question: what is still awaited is asked for again, ever less often.
  document.addEventListener('vitviz:unanswered', () => {
    setTimeout(() => props.value?.asks && root.isConnected && trigger('computed', {}), pause);
    pause = Math.min(2 * pause, LONGEST);
  });
  watch('value', show);
  show();
}
