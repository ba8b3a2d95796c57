// Files handed to the page, dropped or pasted: pictures go to its picture input, a zip to that of lessons.

import { seek } from './elements.js';
import { slimmed } from './slimmed.js';

/** @param {File} [file] */
export const zipped = (file) => Boolean(file && (/\.zip$/i.test(file.name) || /zip/.test(file.type)));

/**
 * Hands the first of some files on, as if it had been chosen.
 * @param {FileList | File[]} files
 */
export async function hand(files) {
  const [given] = files;
  const first = zipped(given) ? await slimmed(given) : given;
  const input = seek(`#vitviz-${zipped(first) ? 'lesson' : 'upload'} input[type=file]`);
  if (!input || !first) return;
  const transfer = new DataTransfer();
  transfer.items.add(first);
  input.files = transfer.files;
  input.dispatchEvent(new Event('change', { bubbles: true }));
}
