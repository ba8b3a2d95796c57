// A view's figure for print: a dialog with format, width and resolution, and the file from the server.

import { file } from './data.js';
import { choice, dialog, field, tick } from './dialog.js';
import { el } from './elements.js';
import { save } from './export.js';
import { asText } from './memory.js';
import { spokenTag, t } from './words.js';

const chosen = { form: 'svg', width: '', dpi: '300', detail: false }; // for every view, while the page lives

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
  const form = choice(chosen, 'form', [
    ['svg', 'SVG'],
    ['pdf', 'PDF'],
    ['png', 'PNG'],
    ['txt', t('Caption (text)')],
  ]);
  const dpi = field(
    t('Dots per inch'),
    choice(
      chosen,
      'dpi',
      ['150', '300', '600'].map((one) => [one, one]),
    ),
  );
  const width = el('input', { type: 'number', min: 40, max: 400, step: 1, placeholder: t('as it needs') });
  const shown = () => {
    dpi.hidden = chosen.form !== 'png';
  };
  width.value = chosen.width;
  width.addEventListener('input', () => {
    chosen.width = width.value;
  });
  form.addEventListener('change', shown);
  shown();
  const fields = [
    field(t('Format'), form),
    field(t('Width in mm, 40 to 400'), width),
    dpi,
    field(t('With its detail'), tick(chosen, 'detail')),
  ];
  dialog(self, t('The figure for print'), fields, (signal) => download(self, signal));
}

/** Fetches the figure under the settings in view and saves it under the server's name for it. */
async function download(self, signal) {
  const asked = { 'print.dpi': chosen.dpi, 'print.detail': chosen.detail ? '1' : '0' };
  if (chosen.width) asked['print.width'] = chosen.width;
  asked['print.lang'] = spokenTag();
  const found = await file(self.path(`print.${chosen.form}`, asText({ ...self.settings, ...asked })), signal);
  save(found.blob, found.name || `vitviz-${self.name}.${chosen.form}`);
}
