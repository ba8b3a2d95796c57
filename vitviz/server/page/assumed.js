// Values that a checkpoint's file does not state: the choices for each value, with the prediction of each
// choice. Every view is marked "assumed" until all values are set.

import { button, div, el, span } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { scored } from '../../frontend/numbers.js';
import { questions } from './requests.js';

const titles = () => ({
  heads: t('Heads'),
  normalisation: t('Mean and deviation'),
  crop_pct: t('Crop'),
  interpolation: t('Interpolation'),
  activation: t('Activation'),
  epsilon: t('Norm epsilon'),
  mapping: t('Tensor mapping'),
  weights: t('Set of weights'),
  pool: t('What the classifier reads'),
  head_type: t('Meaning of the single output'),
  block: t('Position of the norms'),
});

/** Formats "heads=6" as "6", and mean and deviation by the name of the normalisation. */
function named(choice) {
  const values = [...new URLSearchParams(choice.text).values()];
  return choice.known ? t(choice.known) : values.join(' ± ');
}

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-assumed');
  const question = questions(trigger, 'assume');
  let wanted = { of: '', said: '' }; // of a file, requested but not yet answered
  const details = el('details', { open: true });
  // one field per file, so that a rebuilt form keeps the typed names
  /** @type {any} */
  let names = { of: null, box: null, field: null };

  function ask(said) {
    wanted = { of: props.value.file, said };
    question.ask({ said });
  }

  function say(more) {
    const coming = question.open() && wanted.of === props.value.file;
    const said = new URLSearchParams(coming ? wanted.said : props.value.said);
    for (const text of more) new URLSearchParams(text).forEach((value, name) => said.set(name, value));
    ask(said.toString());
  }

  /** The choices for one value, with the prediction of each choice. */
  function asked(item) {
    const legend = el('legend', { text: titles()[item.name] });
    if (!item.choices.length) {
      const text = t(
        'Inferred from names and shapes. Confirm the mapping in a file next to the weights, ' +
          'including whether the last norm is before the average (norm.*) or after it (fc_norm.*).',
      );
      return el('fieldset', {}, legend, el('p', { class: 'vv-small', text }));
    }
    const rows = item.choices.map((choice) => {
      const told = { name: `vv-${item.name}`, checked: choice.text === item.taken };
      const input = el('input', { type: 'radio', ...told, onchange: () => say([choice.text]) });
      const read = new URLSearchParams(choice.text).get('head_type'); // otherwise the current head type
      const answer = choice.answer
        ? `${choice.answer[0]} ${scored(choice.answer[1], read ?? props.value.head_type)}`
        : '';
      return el('label', {}, input, span(named(choice)), el('span', { class: 'vv-small', text: answer }));
    });
    return el('fieldset', {}, legend, ...rows);
  }

  /** The field for a file's class names: one per line, typed or read from a file. */
  function naming(of, classes) {
    const count = el('p', { class: 'vv-small', role: 'status' });
    const take = (text) => {
      box.value = text;
      const given = text.trim() ? text.trimEnd().split(/\r\n|\r|\n/).length : 0;
      count.textContent = t('{given} of {classes} names, one per line', { given, classes });
    };
    const label = t('Names of the classes');
    const box = el('textarea', { rows: 3, 'aria-label': label, oninput: () => take(box.value) });
    const file = el('input', {
      type: 'file',
      accept: '.txt,text/plain',
      'aria-label': t('File with one name per line'),
      onchange: async () => file.files[0] && take(await file.files[0].text()),
    });
    take('');
    return { of, box, field: el('fieldset', {}, el('legend', { text: label }), box, count, file) };
  }

  function mark(value) {
    const items = [...(value?.items ?? []), ...(value?.second ?? [])].map((item) => titles()[item.name]);
    const text = items.length ? t('assumed: {what}', { what: [...new Set(items)].join(', ') }) : '';
    document.body.classList.toggle('vv-is-assumed', items.length > 0);
    document.documentElement.style.setProperty('--vv-assumed', JSON.stringify(text));
  }

  function show() {
    const { value } = props;
    mark(value);
    root.hidden = !value || (!value.items?.length && !value.said);
    if (root.hidden) return;
    const way = (text, run) => button(text, run, { class: 'vv-edit-all' });
    const what = decodeURIComponent(value.said || '')
      .replaceAll('&', ', ')
      .replaceAll('+', ' ');
    const told = value.said && el('p', { class: 'vv-small', text: t('Your settings: {what}', { what }) });
    const taken = value.items.map((item) => item.taken).filter(Boolean);
    if (names.of !== value.file) names = naming(value.file, value.classes);
    const keep = () => trigger('keep', { labels: names.box.value });
    const ways = [
      taken.length > 0 && way(t('Confirm these values'), () => say(taken)),
      value.said && way(t('Undo these settings'), () => ask('')),
      value.keeps && value.said && way(t('Save next to the file'), keep),
    ];
    const text = value.items.length ? t('Not stated in the file') : t('Settings given for this file');
    const parts = [...value.items.map(asked), value.classes && names.field, told];
    const all = [el('summary', { text }), ...parts, div('vv-assumed-do', ...ways)];
    details.replaceChildren(...all.filter(Boolean));
    root.replaceChildren(details);
    root.dataset.said = value.said;
    if (value.items.length && !value.answered) trigger('answers', {});
  }

  watch('value', show);
  show();
}
