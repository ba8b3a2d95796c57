// Files dropped on the page or pasted: images go to the image input, a zip or a file of vectors to the lesson
// input, a video to the timeline. Of a lesson's zip only the parts that a page reads are uploaded, because
// its numbers and figures may exceed the upload limit. Format: PKWARE's APPNOTE 6.3, as in
// server/security/zips.py.

import { seek } from './elements.js';
import { send } from './events.js';
import { t } from './i18n.js';

const READ = ['settings.json', 'upload.jpg', 'classes'];
const [END, ENTRY, LOCAL] = [22, 46, 30]; // bytes of each record before its name or comment

const view = async (file, from, to) => new DataView(await file.slice(from, to).arrayBuffer());

/** The needed entries of a zip, each as bytes and directory record. Throws if the file is no zip. */
async function entries(file) {
  const tail = await view(file, Math.max(0, file.size - END - 65535), file.size);
  let end = tail.byteLength - END;
  while (tail.getUint32(end, true) !== 0x06054b50) end -= 1;
  const start = tail.getUint32(end + 16, true);
  const directory = await view(file, start, start + tail.getUint32(end + 12, true));
  const found = [];
  for (let at = 0, left = tail.getUint16(end + 10, true); left; left -= 1) {
    const [name, extra, comment] = [28, 30, 32].map((place) => directory.getUint16(at + place, true));
    const size = ENTRY + name + extra + comment;
    if (READ.includes(new TextDecoder().decode(directory.buffer.slice(at + ENTRY, at + ENTRY + name)))) {
      const from = directory.getUint32(at + 42, true);
      const local = await view(file, from, from + LOCAL);
      const head = LOCAL + local.getUint16(26, true) + local.getUint16(28, true);
      const bytes = file.slice(from, from + head + directory.getUint32(at + 20, true));
      found.push([bytes, directory.buffer.slice(at, at + size)]);
    }
    at += size;
  }
  return found;
}

/**
 * Returns the zip with only the needed files; unchanged if that fails, so that the server reports the error.
 */
async function slimmed(file) {
  let found;
  try {
    found = await entries(file);
  } catch {
    return file;
  }
  let start = 0;
  for (const [bytes, record] of found) {
    new DataView(record).setUint32(42, start, true);
    start += bytes.size;
  }
  const end = new DataView(new ArrayBuffer(END));
  end.setUint32(0, 0x06054b50, true);
  end.setUint16(8, found.length, true);
  end.setUint16(10, found.length, true);
  const size = found.reduce((sum, [, record]) => sum + record.byteLength, 0);
  end.setUint32(12, size, true);
  end.setUint32(16, start, true);
  return new File([...found.map(([bytes]) => bytes), ...found.map(([, record]) => record), end], file.name);
}

/** @param {File} [file] */
export const zipped = (file) => Boolean(file && (/\.zip$/i.test(file.name) || /zip/.test(file.type)));

/** A file of vectors as classes. @param {File} [file] */
export const vectored = (file) => /\.(npz|safetensors)$/i.test(file?.name || '');

/** True for possible videos; `moves` decides for GIFs. */
export const filmed = (file) =>
  Boolean(
    file &&
      (/^video\/|^image\/gif$/.test(file.type) || /\.(mp4|m4v|mov|webm|mkv|avi|m3u8?)$/i.test(file.name)),
  );

/** True for files that vitviz may read; only their content decides. @param {File} file */
export const accepted = (file) =>
  [zipped, vectored, filmed].some((kind) => kind(file)) || file.type.startsWith('image/');

const refusal = (file) => ({
  text: t(
    'The file {name} is neither an image nor a video, lesson or file of vectors.' +
      ' Choose a JPEG, PNG or WebP image.',
    { name: file.name },
  ),
});

/** True if a file has more than one frame; each GIF frame begins with a graphic control extension. */
const moves = async (file) =>
  file.type !== 'image/gif' ||
  new TextDecoder('latin1').decode(await file.arrayBuffer()).split('!\xf9\x04').length > 2;

/** Passes on the first of some files as if it had been chosen in an input. */
export async function hand(files) {
  const [given] = files;
  if (filmed(given) && (await moves(given))) {
    send('open-video', given);
    return;
  }
  const refused = given && !accepted(given);
  send('notice', refused ? refusal(given) : '');
  if (refused) return;
  const first = zipped(given) && !vectored(given) ? await slimmed(given) : given;
  const input = seek(`#vitviz-${zipped(first) || vectored(first) ? 'lesson' : 'upload'} input[type=file]`);
  if (!input || !first) return;
  const transfer = new DataTransfer();
  transfer.items.add(first);
  input.files = transfer.files;
  input.dispatchEvent(Object.assign(new Event('change', { bubbles: true }), { handed: true }));
}
