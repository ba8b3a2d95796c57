// Sentences as classes, for a checkpoint with a text tower: one a line, and perhaps a template around each.

import { button, div, el } from '../../canvas/elements.js';
import { t } from '../../canvas/words.js';
import { questions } from './questions.js';

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-sentences');
  const question = questions(trigger, 'ask');
  const lines = (box) => box.value.split(/\r\n|\r|\n/).map((one) => one.trim());
  const written = () => [box, template].map((one) => lines(one).filter(Boolean));
  let shown = { of: null, text: '' }; // of which checkpoint, and what its answer was about

  function ask() {
    const [sentences, templates] = written();
    question.ask({ sentences, templates });
  }
  const keys = (event) => event.key === 'Enter' && (event.ctrlKey || event.metaKey) && ask();
  const box = el('textarea', { rows: 3, id: 'vv-sentences-box', oninput: fresh, onkeydown: keys });
  const template = el('textarea', { rows: 1, oninput: fresh, placeholder: 'a photo of a {}.' });
  const go = button(t('Ask'), ask);
  const note = t('Most text towers have read English alone. Ctrl + Enter asks.');
  root.removeAttribute('role');
  root.replaceChildren(
    el('label', { for: 'vv-sentences-box', text: t('Sentences as classes, one a line') }),
    box,
    div('vv-sentences-do', el('label', {}, t('Around each'), template), go),
    el('p', { class: 'vv-small', text: note }),
  );

  function fresh() {
    go.disabled = JSON.stringify(written()) === shown.text;
  }

  watch('value', show);
  show();

  /** What is being written stays where another answer of the same checkpoint comes meanwhile. */
  function show() {
    const { value } = props;
    root.hidden = !value?.reads;
    if (root.hidden) return;
    const given = [value.sentences, value.templates];
    const text = JSON.stringify(given);
    if (shown.of !== value.of || shown.text !== text) {
      [box.value, template.value] = given.map((one) => one.join('\n'));
      shown = { of: value.of, text };
    }
    fresh();
  }
}
