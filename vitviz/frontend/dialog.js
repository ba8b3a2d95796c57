// A small dialog for the options of a file export, with progress.

import { sentenceOf } from './data.js';
import { button, div, el, selection, span } from './elements.js';
import { t } from './i18n.js';

/** A row of a dialog: label and input. */
export const field = (label, input) => el('label', { class: 'vv-print-field' }, span(label), input);

/** Binds an input's `property` to `chosen[name]`. */
export function keeping(node, chosen, name, property = 'value') {
  node[property] = chosen[name];
  node.addEventListener('input', () => (chosen[name] = node[property]));
  return node;
}

/** A selection bound likewise; each option has a value and, optionally, a text. */
export const choice = (chosen, name, options) => keeping(selection({}, options), chosen, name);

/** A checkbox, bound likewise. */
export const tick = (chosen, name) => keeping(el('input', { type: 'checkbox' }), chosen, name, 'checked');

/**
 * Opens a dialog over a view. `take(signal, say)` fetches the file and is aborted when the dialog closes. If
 * `take` throws, the message is shown and the dialog stays open; it also stays open if `take` returns true.
 * Returns the dialog, its button `go`, `say`, and the signal.
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
      say(t(sentenceOf(problem)));
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
