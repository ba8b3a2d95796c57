// Arrays and images from the server: fetched once, cached within a budget, aborted when no view waits.

import { pen, sheet } from './elements.js';
import { t } from './i18n.js';

const kept = new Map(); // address -> entry, oldest first
const budget = 256 * 2 ** 20;
let held = 0;

/** An error with the server's message. */
export class Refusal extends Error {
  constructor(sentence) {
    super(typeof sentence === 'string' ? sentence : sentence.text);
    this.sentence = sentence;
  }
}

/** True if a request was aborted because its result is no longer needed. */
export const aborted = (/** @type {any} */ problem) => problem?.name === 'AbortError';

/** The server's message or an error's own, to be translated. */
export const sentenceOf = (/** @type {any} */ problem) => problem?.sentence ?? String(problem?.message);

export const address = (path) => new URL(`gradio_api/vitviz/${path}`, document.baseURI).href;

const posted = (question) => ({
  method: 'POST',
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify(question),
});

async function answer(url, signal, question) {
  let response;
  try {
    response = await fetch(url, { signal, ...question });
  } catch (error) {
    if (aborted(error)) throw error;
    throw new Refusal(t('The server cannot be reached.'));
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  if (body && typeof body.text === 'string') throw new Refusal(body);
  if (body && typeof body.detail === 'string') throw new Refusal(body.detail);
  throw new Refusal(t('The server answered with status {status}.', { status: response.status }));
}

function drop(url, entry) {
  if (kept.get(url) !== entry) return;
  kept.delete(url);
  held -= entry.bytes;
}

function get(path, signal, read) {
  const url = address(path);
  let entry = kept.get(url);
  if (entry) {
    kept.delete(url); // move to the end: most recently used
  } else {
    const controller = new AbortController();
    entry = { bytes: 0, waiting: 0, done: false, controller };
    entry.promise = answer(url, controller.signal)
      .then(read)
      .then(({ value, bytes }) => {
        entry.done = true;
        entry.bytes = bytes;
        held += bytes;
        for (const [other, old] of kept) {
          if (held <= budget) break;
          if (old !== entry && old.done) drop(other, old);
        }
        return value;
      });
    entry.promise.catch(() => drop(url, entry));
  }
  kept.set(url, entry);
  entry.waiting += 1;
  return new Promise((resolve, reject) => {
    const leave = () => {
      entry.waiting -= 1;
      if (!entry.done && entry.waiting === 0) {
        drop(url, entry);
        entry.controller.abort();
      }
      reject(new DOMException('no longer wanted', 'AbortError'));
    };
    if (signal?.aborted) return leave();
    signal?.addEventListener('abort', leave, { once: true });
    entry.promise.then(resolve, reject).finally(() => {
      entry.waiting -= 1;
      signal?.removeEventListener('abort', leave);
    });
  });
}

/** @type {Float32Array | null} */
let halves = null; // all float16 values as numbers, for browsers without Float16Array

/** Float16 numbers as float32, exactly. */
export function fromHalf(buffer) {
  if (typeof Float16Array === 'function') return new Float32Array(new Float16Array(buffer));
  const half = (_, i) => {
    const [power, rest] = [(i >> 10) & 31, i & 1023];
    const normal = power === 31 ? (rest ? NaN : Infinity) : (1 + rest / 1024) * 2 ** (power - 15);
    return (i & 0x8000 ? -1 : 1) * (power ? normal : rest * 2 ** -24);
  };
  halves ??= Float32Array.from({ length: 65536 }, half);
  const known = halves;
  return new Float32Array(new Uint16Array(buffer)).map((word) => known[word]);
}

const readers = {
  float16: fromHalf,
  float32: (buffer) => new Float32Array(buffer),
  uint8: (buffer) => new Uint8Array(buffer),
  int32: (buffer) => new Int32Array(buffer),
};

/** Parses JSON that arrives as an item of bytes. */
export const unpacked = (item) => JSON.parse(new TextDecoder().decode(item.values));

/** Fetches an array: {values, shape}. The bytes are little-endian; X-Shape and X-Dtype describe them. */
export function array(path, signal) {
  return get(path, signal, async (response) => {
    const type = response.headers.get('X-Dtype') || 'float32';
    const shape = (response.headers.get('X-Shape') || '').split(',').filter(Boolean).map(Number);
    const values = readers[type](await response.arrayBuffer());
    return { value: { values, shape }, bytes: values.byteLength };
  });
}

/** Fetches a file to save, with the server's name for it; not cached. */
export async function file(path, signal) {
  const response = await answer(address(path), signal);
  const [, name] = /filename="([^"]+)"/.exec(response.headers.get('Content-Disposition') || '') || [];
  return { blob: await response.blob(), name };
}

/** A JSON response, not cached. */
export async function answers(path, signal) {
  return (await answer(address(path), signal)).json();
}

/**
 * A JSON response to posted JSON; with `last`, the request is sent even while the page closes.
 * @type {(path: string, question: any, last?: boolean, signal?: AbortSignal) => Promise<any>}
 */
export const asked = async (path, question, last = false, signal = undefined) =>
  (await answer(address(path), signal, { ...posted(question), keepalive: last })).json();

/** Uploads a file and returns its path on the server. */
export async function sent(file, signal) {
  const body = new FormData();
  body.append('files', file);
  const url = new URL('gradio_api/upload', document.baseURI).href;
  return (await (await answer(url, signal, { method: 'POST', body })).json())[0];
}

/** The result for a frame; the appended arrays are cached as if they had been fetched. */
export async function passed(path, question) {
  const bytes = await (await answer(address(path), undefined, posted(question))).arrayBuffer();
  let at = 4 + new DataView(bytes).getUint32(0, true);
  const told = JSON.parse(new TextDecoder().decode(bytes.slice(4, at)));
  for (const [name, shape, type, length] of told.arrays) {
    const values = readers[type](bytes.slice(at, at + length));
    put(`${told.key}/${name}`, { values, shape }, values.byteLength);
    at += length;
  }
  return told;
}

/** Caches an image or an array of `bytes` bytes as if it had been fetched. */
export function put(path, value, bytes = value.width * value.height * 4) {
  kept.set(address(path), { bytes, waiting: 0, done: true, promise: Promise.resolve(value) });
  held += bytes;
}

/** Removes everything cached for a key. */
export function forget(key) {
  for (const [url, entry] of kept) if (url.startsWith(address(`${key}/`)) && entry.done) drop(url, entry);
}

/** An image as an ImageBitmap, with unchanged pixel values. */
export function picture(path, signal) {
  return get(path, signal, async (response) => {
    const value = await createImageBitmap(await response.blob(), {
      premultiplyAlpha: 'none',
      colorSpaceConversion: 'none',
    });
    return { value, bytes: value.width * value.height * 4 };
  });
}

/** The pixel bytes of an image: RGBA, row by row. */
export function pixels(bitmap) {
  const context = pen(sheet(bitmap.width, bitmap.height), { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  return context.getImageData(0, 0, bitmap.width, bitmap.height).data;
}
