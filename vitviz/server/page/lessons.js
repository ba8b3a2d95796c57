// The lessons of this server, and the view settings of an opened lesson. Also handles files dropped or pasted
// anywhere on the page, and zips of lessons and videos chosen with the image's upload button.

import { button, div, el, origin, typing } from '../../frontend/elements.js';
import { hand, zipped } from '../../frontend/file_drop.js';
import { t } from '../../frontend/i18n.js';
import { put } from '../../frontend/view_state.js';
import { questions } from './requests.js';

const PICTURE = '#vitviz-upload';
const holds = (event) => [...(event.dataTransfer?.types || [])].includes('Files');

/** Handles a file chosen as an image: Gradio would refuse a zip or a video, each in its own words. */
function rerouted(event, files) {
  if (event.handed || !files?.[0] || !origin(event).closest?.(PICTURE)) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  hand(files);
  if (event.type === 'change') origin(event).value = ''; // allows the same file to be chosen again
}

/** Listens as long as the page is open. */
function listen() {
  const before = { capture: true };
  document.addEventListener('change', (event) => rerouted(event, origin(event).files), before);
  document.addEventListener('drop', (event) => rerouted(event, event.dataTransfer?.files), before);
  document.addEventListener(
    'click',
    (event) => {
      const input = origin(event).closest?.(PICTURE)?.querySelector('input[type=file]');
      if (input) input.accept = 'image/*,video/*,.zip,.npz,.safetensors'; // shown in the file dialog
    },
    before,
  );
  document.addEventListener('dragover', (event) => {
    if (holds(event)) event.preventDefault(); // or the browser would open the file in place of the page
  });
  document.addEventListener('drop', (event) => {
    if (event.defaultPrevented || !holds(event)) return;
    event.preventDefault();
    hand(event.dataTransfer?.files ?? []);
  });
  document.addEventListener('paste', (event) => {
    const files = [...(event.clipboardData?.files || [])];
    const file = files.find((one) => one.type.startsWith('image/') || zipped(one));
    if (!file || event.defaultPrevented || typing(origin(event))) return;
    event.preventDefault();
    hand([file]);
  });
}

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-lessons');
  const question = questions(trigger, 'learn');
  let last = 0;

  function show() {
    const { offered = [], taken } = props.value || {};
    const lesson = (name) => button(name, () => question.ask({ name }), { title: name });
    root.hidden = !offered.length;
    root.replaceChildren(el('h2', { text: t('Lessons') }), div('vv-lessons-list', ...offered.map(lesson)));
    if (!taken || taken.number === last) return;
    last = taken.number;
    put(taken.settings, taken);
  }

  root.setAttribute('role', 'group');
  root.setAttribute('aria-label', t('Lessons'));
  listen();
  watch('value', show);
  show();
}
