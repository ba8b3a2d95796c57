// The footer below a view's settings: reset, and a menu of all exports; figures for print through a dialog.

import { aborted, address, file, sentenceOf } from './data.js';
import { choice, dialog, field, keeping, tick } from './dialog.js';
import { button, div, el, menu, seek, stack } from './elements.js';
import { portrait, save } from './export.js';
import { spokenTag, t } from './i18n.js';
import { spoken } from './settings.js';
import { filmButton } from './video_dialog.js';
import { asText } from './view_state.js';

const PIXELS = 20; // millions, as in Python's Limits; compared by a test
// shared by all views until reload
const chosen = { form: 'svg', width: '', dpi: '300', detail: false, caption: 'txt', definition: false };

function open(self) {
  const vectors = ['svg', 'pdf', 'png'].map((one) => [one, one.toUpperCase()]);
  const form = choice(chosen, 'form', [...vectors, ['caption', t('Caption')]]);
  const dpi = field(t('Dots per inch'), choice(chosen, 'dpi', ['150', '300', '600']));
  const size = { type: 'number', min: 40, max: 400, step: 1, placeholder: t('automatic') };
  const width = keeping(el('input', size), chosen, 'width');
  const text = t('At most {count} million pixels. SVG and PDF have no such limit.', { count: PIXELS });
  const most = el('p', { text });
  const shown = () => {
    dpi.hidden = chosen.form !== 'png';
    most.hidden = dpi.hidden;
  };
  form.addEventListener('change', shown);
  shown();
  const preview = el('img', { class: 'vv-print-preview', alt: t('Export the figure for print') });
  const written = { class: 'vv-print-caption', readonly: true, 'aria-label': t('Caption') };
  const caption = el('textarea', written);
  const copied = async () => {
    caption.select();
    await navigator.clipboard.writeText(caption.value).catch(() => document.execCommand('copy'));
    shows.say(t('Copied.'));
  };
  const copy = button(t('Copy caption'), copied);
  const detail = tick(chosen, 'detail');
  const forms = [
    ['txt', t('Plain text')],
    ['tex', 'LaTeX'],
    ['md', 'Markdown'],
  ];
  const [kind, definition] = [choice(chosen, 'caption', forms), tick(chosen, 'definition')];
  kind.setAttribute('aria-label', t('Form of the caption'));
  const fields = [
    div(
      'vv-print-sides',
      preview,
      stack(
        caption,
        div('vv-buttons', copy, kind),
        field(t('With settings, definition and source'), definition),
      ),
    ),
    field(t('Format'), form),
    field(t('Width in mm, 40 to 400'), width),
    dpi,
    most,
    field(t('Include detail'), detail),
  ];
  const shows = dialog(self, t('Export the figure for print'), fields, async (signal) => {
    const ending = chosen.form === 'caption' ? chosen.caption : chosen.form;
    const found = await asked(self, ending, signal);
    save(found.blob, found.name || `vitviz-${self.name}.${ending}`);
    if (caption.value) await copied(); // a paper needs both the figure and the caption
    return true;
  });
  shows.go.textContent = t('Download and copy caption');
  shows.node.classList.add('vv-print-dialog');
  /** Shows the caption and, unless only its form has changed, the figure. */
  const look = async ({ target } = { target: null }) => {
    const same = [kind, definition].includes(target);
    const about = () => [chosen.caption, chosen.definition, chosen.width, chosen.detail].join();
    const goal = about();
    try {
      const names = [chosen.caption, ...(same ? [] : ['svg'])];
      const [text, drawn] = await Promise.all(names.map((one) => asked(self, one, shows.signal)));
      const found = await text.blob.text();
      if (goal === about()) caption.value = found; // a later change may be answered first
      shows.say('');
      if (same) return;
      URL.revokeObjectURL(preview.src);
      preview.src = URL.createObjectURL(new Blob([drawn.blob], { type: 'image/svg+xml' }));
    } catch (problem) {
      if (!aborted(problem)) shows.say(t(sentenceOf(problem)));
    }
  };
  shows.say(t('Drawing …'));
  for (const one of [width, detail, kind, definition]) one.addEventListener('change', look);
  look();
}

/** Fetches the figure, or its caption, with the current settings. */
function asked(self, form, signal) {
  const given = { 'print.dpi': chosen.dpi, 'print.detail': chosen.detail ? '1' : '0' };
  if (chosen.width) given['print.width'] = chosen.width;
  given['print.lang'] = spokenTag();
  given['print.definition'] = chosen.definition ? '1' : '0';
  return file(self.path(`print.${form}`, asText({ ...self.settings, ...given })), signal);
}

async function shoot(self) {
  const told = self.value.controls
    .filter((c) => c.label)
    .map((c) => `${t(c.label)}: ${spoken(c, self.settings[c.name], self.value)}`);
  const title = [t(self.view.title), self.value.checkpoint].filter(Boolean).join(' · ');
  const said = [self.view.caption?.(self), ...told, 'vitviz'].filter(Boolean);
  save(await portrait(self, title, said), `vitviz-${self.name}.png`);
}

/** A button for the view's settings and the *Export* menu; `reset` is the action of the button. */
export function closing(self, reset) {
  const settable = self.value.controls.length > 0 && !self.value.second;
  const taken = (name) => (event) =>
    (event.currentTarget.href = address(self.path(name, asText(self.settings))));
  const file = (text, name, kind) =>
    el('a', { text, download: true, href: '#', onclick: taken(name), ...kind });
  // the page's header has these two; a standalone document has no header
  const ofPage = (text, kind) =>
    button(text, () => seek(`.vv-links .${kind}`)?.click(), { class: 'vv-paged' });
  const exports = [
    self.value.printable &&
      button(t('Figure and caption (SVG, PDF, PNG)'), () => open(self), { class: 'vv-print' }),
    button(t('Figure (PNG)'), () => shoot(self), { class: 'vv-png' }),
    filmButton(self),
    ...(self.value.files || []).map(([name, label]) =>
      file(t(label), name, { class: 'vv-take', 'data-name': name }),
    ),
    file(t('Numbers (.npz)'), 'numbers.npz', { class: 'vv-npz' }),
    ofPage(t('Copy link'), 'vv-copy'),
    ofPage(t('Download all'), 'vv-everything'),
  ].filter(Boolean);
  return [
    settable && button(t('Reset'), reset, { class: 'vv-reset' }),
    ...menu(t('Export'), exports, { class: 'vv-export' }),
  ].filter(Boolean);
}
