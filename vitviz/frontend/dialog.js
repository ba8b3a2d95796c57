// A small dialog that asks how a file is wanted, and says how far it is.

import { button, div, el, selection, span } from './elements.js';
import { t } from './i18n.js';

/** A line of a dialog: what is asked, and where it is answered. */
export const field = (label, input) => el('label', { class: 'vv-print-field' }, span(label), input);

/** Keeps in `chosen` under a name what is put into a field; `property` is where the field has it. */
export function keeping(node, chosen, name, property = 'value') {
  node[property] = chosen[name];
  node.addEventListener('input', () => (chosen[name] = node[property]));
  return node;
}

/** A choice of a few values, kept so: each with its text, or one that says itself. */
export const choice = (chosen, name, options) => keeping(selection({}, options), chosen, name);

/** Yes or no, kept likewise. */
export const tick = (chosen, name) => keeping(el('input', { type: 'checkbox' }), chosen, name, 'checked');

/**
 * Opens a dialog over a view. `take(signal, say)` gets the file, and is given up when the dialog is closed; a
 * sentence that it throws stands in the dialog, which then stays, as it does where `take` gives true. Returns
 * the dialog, its button `go` and `say`.
 */
export function dialog(self, title, fields, take) {
  const said = el('p', { class: 'vv-text', role: 'status' });
  const go = button(t('Download'), null, { class: 'vv-print-take' });
  const close = button(t('Close'), () => node.close());
  const node = el(
    'dialog',
    { class: 'vv-dialog', 'aria-label': title, 'data-export': 'no' },
    el('p', { class: 'vv-h', text: title }),
    ...fields,
    said,
    div('vv-buttons', go, close),
  );
  const life = new AbortController();
  const say = (text) => (said.textContent = text);
  go.addEventListener('click', async () => {
    go.disabled = true;
    say(t('Drawing …'));
    try {
      if (await take(life.signal, say)) say(t('Saved.'));
      else node.close();
    } catch (problem) {
      say(problem.sentence ? t(problem.sentence) : problem.message);
    }
    go.disabled = false;
  });
  node.addEventListener('close', () => {
    life.abort();
    node.remove();
  });
  self.root.append(node);
  node.showModal();
  return { node, go, say, signal: life.signal };
}
