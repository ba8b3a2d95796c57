// A view's figure for print: a small dialog with format, width and resolution, and the file from the server.

import { file } from './data.js';
import { el } from './elements.js';
import { save } from './export.js';
import { asText } from './memory.js';
import { t } from './words.js';

const FORMATS = ['svg', 'pdf', 'png', 'txt'];
const chosen = { form: 'svg', width: '', dpi: '300', detail: false }; // the same for every view, as long as the page is open

/** A choice of a few values as a field with a label. */
function choice(label, options, name) {
  const select = el('select', { onchange: () => { chosen[name] = select.value; } }, ...options.map(([value, text]) => el('option', { value, text })));
  select.value = chosen[name];
  return el('label', { class: 'vv-print-field' }, el('span', { text: label }), select);
}

/** The button that opens the dialog; null for a view without a figure for print. */
export function printButton(self) {
  if (!self.value.printable) return null;
  return el('button', { type: 'button', class: 'vv-print', text: t('For print …'), onclick: () => dialog(self) });
}

function dialog(self) {
  const form = choice(t('Format'), FORMATS.map((name) => [name, name === 'txt' ? t('Caption (text)') : name.toUpperCase()]), 'form');
  const dpi = choice(t('Dots per inch'), ['150', '300', '600'].map((one) => [one, one]), 'dpi');
  const width = el('input', { type: 'number', min: 40, max: 400, step: 1, placeholder: t('as it needs'), oninput: () => { chosen.width = width.value; } });
  const detail = el('input', { type: 'checkbox', onchange: () => { chosen.detail = detail.checked; } });
  const said = el('p', { class: 'vv-text', role: 'status' }), take = el('button', { type: 'button', class: 'vv-print-take', text: t('Download') });
  const close = el('button', { type: 'button', text: t('Close'), onclick: () => node.close() });
  const node = el('dialog', { class: 'vv-dialog', 'aria-label': t('The figure for print'), 'data-export': 'no' },
    el('p', { class: 'vv-h', text: t('The figure for print') }),
    form,
    el('label', { class: 'vv-print-field' }, el('span', { text: t('Width in mm, 40 to 400') }), width),
    dpi,
    el('label', { class: 'vv-print-field' }, el('span', { text: t('With its detail') }), detail),
    said,
    el('div', { class: 'vv-buttons' }, take, close));
  [width.value, detail.checked] = [chosen.width, chosen.detail];
  const fit = () => { dpi.hidden = chosen.form !== 'png'; };
  form.addEventListener('change', fit);
  fit();
  take.addEventListener('click', async () => {
    take.disabled = true;
    said.textContent = t('Drawing …');
    try {
      const asked = { 'print.dpi': chosen.dpi, 'print.detail': chosen.detail ? '1' : '0', 'print.lang': navigator.language };
      if (chosen.width) asked['print.width'] = chosen.width;
      const found = await file(self.path(`print.${chosen.form}`, asText({ ...self.settings, ...asked })));
      save(found.blob, found.name || `vitviz-${self.name}.${chosen.form}`);
      node.close();
    } catch (problem) {
      said.textContent = problem.sentence ? t(problem.sentence) : problem.message;
    }
    take.disabled = false;
  });
  node.addEventListener('close', () => node.remove());
  self.root.append(node);
  node.showModal();
}
