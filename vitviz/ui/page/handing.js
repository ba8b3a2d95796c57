// Where files reach the page: dropped or pasted anywhere on it, and a lesson's zip or a video through the
// picture's own button too.

import { origin, typing } from '../../canvas/elements.js';
import { filmed, hand, vectored, zipped } from '../../canvas/handed.js';

const PICTURE = '#vitviz-upload';
const holds = (event) => [...(event.dataTransfer?.types || [])].includes('Files');

/** A zip or a video where a picture was expected, which Gradio would refuse. */
function rerouted(event, files) {
  const ours = [zipped, filmed, vectored].some((kind) => kind(files?.[0]));
  if (event.handed || !origin(event).closest?.(PICTURE) || !ours) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  hand(files);
  if (event.type === 'change') origin(event).value = ''; // or the same one could not be chosen again
}

/** Listens as long as the page is open. */
export function listen() {
  const before = { capture: true };
  document.addEventListener('change', (event) => rerouted(event, origin(event).files), before);
  document.addEventListener('drop', (event) => rerouted(event, event.dataTransfer?.files), before);
  document.addEventListener(
    'click',
    (event) => {
      const input = origin(event).closest?.(PICTURE)?.querySelector('input[type=file]');
      if (input) input.accept = 'image/*,video/*,.zip,.npz,.safetensors'; // what the file dialogue offers
    },
    before,
  );
  document.addEventListener('dragover', (event) => {
    if (holds(event)) event.preventDefault(); // else the browser would open the file in place of the page
  });
  document.addEventListener('drop', (event) => {
    if (event.defaultPrevented || !holds(event)) return;
    event.preventDefault();
    hand(event.dataTransfer.files);
  });
  document.addEventListener('paste', (event) => {
    const files = [...(event.clipboardData?.files || [])];
    const file = files.find((one) => one.type.startsWith('image/') || zipped(one));
    if (!file || event.defaultPrevented || typing(origin(event))) return;
    event.preventDefault();
    hand([file]);
  });
}
