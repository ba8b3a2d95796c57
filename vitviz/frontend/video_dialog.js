// Exports a view's figure as a video: a dialog with the axis and format, and the file from the server, which
// is polled for the number of finished frames.

import { answers, file, sentenceOf } from './data.js';
import { choice, dialog, field, tick } from './dialog.js';
import { button } from './elements.js';
import { save } from './export.js';
import { spokenTag, t } from './i18n.js';
import { asText } from './view_state.js';

const LOOKS = 500; // ms between two polls
const chosen = { form: 'mp4', over: 'training', width: '960', seconds: '0.8', detail: false };

/** The menu item that opens the dialog; null for a view without a printable figure. */
export const filmButton = (self) =>
  self.value.printable ? button(t('Video (MP4, GIF)'), () => open(self), { class: 'vv-filmed' }) : null;

async function open(self) {
  const over = choice(chosen, 'over', [
    ['training', t('the training')],
    ['layers', t('the layers')],
  ]);
  const form = choice(
    chosen,
    'form',
    ['mp4', 'gif'].map((one) => [one, one.toUpperCase()]),
  );
  const fields = [
    field(t('Format'), form),
    field(t('Video over'), over),
    field(t('Width in pixels'), choice(chosen, 'width', ['640', '960', '1280'])),
    field(t('Seconds per frame'), choice(chosen, 'seconds', ['0.4', '0.8', '1.5', '3'])),
    field(t('Include detail'), tick(chosen, 'detail')),
  ];
  const take = (signal, say) => download(self, signal, say);
  const { go, say, signal } = dialog(self, t('Export the figure as a video'), fields, take);
  go.disabled = true;
  let offered;
  try {
    offered = await answers(self.path('film.json', asText(self.settings)), signal);
  } catch (problem) {
    return say(t(sentenceOf(problem)));
  }
  const shown = () => {
    const found = offered[chosen.over];
    go.disabled = typeof found !== 'number';
    say(go.disabled ? t(found) : t('{count} frames', { count: found }));
  };
  over.addEventListener('change', shown);
  shown();
}

/** Fetches the video with the current settings and saves it under the server's name for it. */
function download(self, signal, say) {
  const asked = {
    'film.over': chosen.over,
    'film.width': chosen.width,
    'film.seconds': chosen.seconds,
    'film.detail': chosen.detail ? '1' : '0',
  };
  return filmed(self.path, chosen.form, { ...self.settings, ...asked }, signal, say);
}

/** Fetches and saves any video; `at` returns the path of a file for given parameters. */
export async function filmed(at, form, asked, signal, say) {
  const ticket = Array.from(crypto.getRandomValues(new Uint8Array(12)), (one) => one.toString(16)).join('');
  const mine = { 'film.lang': spokenTag(), 'film.ticket': ticket };
  const tell = ({ done, of }) => {
    if (of) say(t('Drawing … {percent} %', { percent: Math.floor((100 * done) / of) }));
  };
  const asks = at('film.progress', asText({ 'film.ticket': ticket }));
  // late or failed progress is ignored: the video request itself reports errors
  const far = setInterval(() => answers(asks, signal).then(tell, () => {}), LOOKS);
  try {
    const found = await file(at(`film.${form}`, asText({ ...asked, ...mine })), signal);
    save(found.blob, found.name || `vitviz-film.${form}`);
  } finally {
    clearInterval(far);
  }
}
