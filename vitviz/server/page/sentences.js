// Sentences as classes for checkpoints with a text encoder: one per line, with an optional template. Other
// checkpoints take a file of vectors.

import { button, div, el } from '../../frontend/elements.js';
import { hand } from '../../frontend/file_drop.js';
import { t } from '../../frontend/i18n.js';
import { questions } from './requests.js';

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-sentences');
  const question = questions(trigger, 'ask');
  const lines = (box) => box.value.split(/\r\n|\r|\n/).map((one) => one.trim());
  const written = () => [box, template].map((one) => lines(one).filter(Boolean));
  let shown = { of: null, text: '' }; // checkpoint, and the sentences of its current prediction

  function ask() {
    const [sentences, templates] = written();
    question.ask({ sentences, templates });
  }
  const keys = (event) => event.key === 'Enter' && (event.ctrlKey || event.metaKey) && ask();
  const box = el('textarea', { rows: 3, id: 'vv-sentences-box', oninput: fresh, onkeydown: keys });
  const template = el('textarea', { rows: 1, oninput: fresh, placeholder: 'a photo of a {}.' });
  const go = button(t('Classify'), ask);
  const note = t('Most text encoders were trained on English only. Press Ctrl + Enter to classify.');
  const chosen = () => hand(file.files).then(() => (file.value = '')); // permits choosing the same file again
  const file = el('input', { type: 'file', accept: '.npz,.safetensors', onchange: chosen });
  const given = el('span');
  const without = button(t('Remove vectors'), () => question.ask({ sentences: [], templates: [] }));
  const held = div('vv-sentences-do', given, without);
  const sentences = div(
    '',
    el('label', { for: 'vv-sentences-box', text: t('Sentences as classes, one per line') }),
    box,
    div('vv-sentences-do', el('label', {}, t('Prompt template'), template), go),
    el('p', { class: 'vv-small', text: note }),
  );
  const title = t(
    'One vector per label, of the embedding’s size. Links work while the server keeps the file.',
  );
  root.removeAttribute('role');
  root.replaceChildren(sentences, el('label', { title }, t('Vectors as classes (file)'), file), held);

  function fresh() {
    go.disabled = JSON.stringify(written()) === shown.text;
  }

  watch('value', show);
  show();

  /** Updates the form; text being typed stays when another result of the same checkpoint arrives. */
  function show() {
    const { value } = props;
    root.hidden = !value?.takes;
    if (root.hidden) return;
    sentences.hidden = !value.reads;
    held.hidden = !value.vectors;
    given.textContent = t('The classes are {count} vectors.', { count: value.vectors });
    const asked = [value.sentences, value.templates];
    const text = JSON.stringify(asked);
    if (shown.of !== value.of || shown.text !== text) {
      [box.value, template.value] = asked.map((one) => one.join('\n'));
      shown = { of: value.of, text };
    }
    fresh();
  }
}
