// Files that are handed to the page, dropped or pasted: pictures go to its picture input, a zip or a file of
// vectors to that of lessons, a video to its timeline.

import { seek } from './elements.js';
import { slimmed } from './slimmed.js';

/** @param {File} [file] */
export const zipped = (file) => Boolean(file && (/\.zip$/i.test(file.name) || /zip/.test(file.type)));

/** A file of vectors as classes. @param {File} [file] */
export const vectored = (file) => /\.(npz|safetensors)$/i.test(file?.name || '');

/** What may be a video: of GIFs `moves` tells. @param {File} [file] */
export const filmed = (file) =>
  Boolean(
    file &&
      (/^video\/|^image\/gif$/.test(file.type) || /\.(mp4|m4v|mov|webm|mkv|avi|m3u8?)$/i.test(file.name)),
  );

/** Whether it has more than one frame; of a GIF each begins with when it is shown. */
const moves = async (file) =>
  file.type !== 'image/gif' ||
  new TextDecoder('latin1').decode(await file.arrayBuffer()).split('!\xf9\x04').length > 2;

/**
 * Hands the first of some files on, as if it had been chosen.
 * @param {FileList | File[]} files
 */
export async function hand(files) {
  const [given] = files;
  if (filmed(given) && (await moves(given))) {
    document.dispatchEvent(new CustomEvent('vitviz:video', { detail: given }));
    return;
  }
  const first = zipped(given) && !vectored(given) ? await slimmed(given) : given;
  const input = seek(`#vitviz-${zipped(first) || vectored(first) ? 'lesson' : 'upload'} input[type=file]`);
  if (!input || !first) return;
  const transfer = new DataTransfer();
  transfer.items.add(first);
  input.files = transfer.files;
  input.dispatchEvent(Object.assign(new Event('change', { bubbles: true }), { handed: true }));
}
