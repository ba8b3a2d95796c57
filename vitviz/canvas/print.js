// A view's figure for print: a dialog with format, width and resolution, and the file from the server.

import { file } from './data.js';
import { el } from './elements.js';
import { save } from './export.js';
import { asText } from './memory.js';
import { t } from './words.js';

const chosen = { form: 'svg', width: '', dpi: '300', detail: false }; // for every view, while the page lives

const field = (label, input) => el('label', { class: 'vv-print-field' }, el('span', { text: label }), input);

/** A choice of a few values, remembered under a name. */
function choice(options, name) {
  const listed = options.map(([value, text]) => el('option', { value, text }));
  const select = el('select', {}, ...listed);
  select.value = chosen[name];
  select.addEventListener('change', () => {
    chosen[name] = select.value;
  });
  return select;
}

/** The button that opens the dialog; null for a view without a figure for print. */
export function printButton(self) {
  if (!self.value.printable) return null;
  return el('button', {
    type: 'button',
    class: 'vv-print',
    text: t('For print …'),
    onclick: () => open(self),
  });
}

function open(self) {
  const formats = [
    ['svg', 'SVG'],
    ['pdf', 'PDF'],
    ['png', 'PNG'],
    ['txt', t('Caption (text)')],
  ];
  const form = choice(formats, 'form');
  const dpi = field(
    t('Dots per inch'),
    choice(
      ['150', '300', '600'].map((one) => [one, one]),
      'dpi',
    ),
  );
  const width = el('input', { type: 'number', min: 40, max: 400, step: 1, placeholder: t('as it needs') });
  const detail = el('input', { type: 'checkbox' });
  const said = el('p', { class: 'vv-text', role: 'status' });
  const take = el('button', { type: 'button', class: 'vv-print-take', text: t('Download') });
  const close = el('button', { type: 'button', text: t('Close'), onclick: () => node.close() });
  const node = el(
    'dialog',
    { class: 'vv-dialog', 'aria-label': t('The figure for print'), 'data-export': 'no' },
    el('p', { class: 'vv-h', text: t('The figure for print') }),
    field(t('Format'), form),
    field(t('Width in mm, 40 to 400'), width),
    dpi,
    field(t('With its detail'), detail),
    said,
    el('div', { class: 'vv-buttons' }, take, close),
  );
  const shown = () => {
    dpi.hidden = chosen.form !== 'png';
  };
  [width.value, detail.checked] = [chosen.width, chosen.detail];
  width.addEventListener('input', () => {
    chosen.width = width.value;
  });
  detail.addEventListener('change', () => {
    chosen.detail = detail.checked;
  });
  form.addEventListener('change', shown);
  take.addEventListener('click', async () => {
    take.disabled = true;
    said.textContent = t('Drawing …');
    try {
      await download(self);
      node.close();
    } catch (problem) {
      said.textContent = problem.sentence ? t(problem.sentence) : problem.message;
    }
    take.disabled = false;
  });
  node.addEventListener('close', () => node.remove());
  shown();
  self.root.append(node);
  node.showModal();
}

/** Fetches the figure under the settings in view and saves it under the server's name for it. */
async function download(self) {
  const asked = { 'print.dpi': chosen.dpi, 'print.detail': chosen.detail ? '1' : '0' };
  if (chosen.width) asked['print.width'] = chosen.width;
  asked['print.lang'] = ['zh-CN', 'ko'].includes(navigator.language) ? navigator.language : 'en';
  const found = await file(self.path(`print.${chosen.form}`, asText({ ...self.settings, ...asked })));
  save(found.blob, found.name || `vitviz-${self.name}.${chosen.form}`);
}
