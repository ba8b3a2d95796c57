// The camera: one frame at a time is sent to the server. When a result arrives, the newest frame is sent and
// the result is drawn, until the camera is stopped.

import { put, Refusal } from '../../frontend/data.js';
import { el, pen, sheet } from '../../frontend/elements.js';
import { listen } from '../../frontend/events.js';
import { t } from '../../frontend/i18n.js';
import { begin, pause, stage } from './live.js';

const WANTED = { width: { ideal: 640 }, height: { ideal: 480 }, facingMode: 'environment' };
const PAUSE = 1000; // ms before retrying a server that refused a frame
const STILL = 250; // ms after which a frame is sent even if the camera delivers no new one
const REFUSED = 5; // refusals in a row before stopping
const SMOOTHED = 0.8; // weight of the previous rate in the displayed one

/** Explains in a sentence why the camera is unavailable. */
function why(/** @type {any} */ { name, message }) {
  if (!window.isSecureContext) return t('Browsers allow camera access only over https or on localhost.');
  if (name === 'NotAllowedError')
    return t('Camera access was denied. Allow it in the browser’s settings for this page and retry.');
  if (name === 'NotFoundError' || name === 'TypeError') return t('There is no camera on this device.');
  return t('The camera could not be opened: {reason}', { reason: message });
}

/** Returns the centre of the video, in the shape and size of the model's input, as a JPEG. */
function shot(video, [height, width]) {
  const { videoWidth: w, videoHeight: h } = video;
  const scale = Math.min(w / width, h / height);
  const [across, down] = [width * scale, height * scale];
  const canvas = sheet(width, height);
  const context = pen(canvas);
  context.imageSmoothingQuality = 'high';
  context.drawImage(video, (w - across) / 2, (h - down) / 2, across, down, 0, 0, width, height);
  return canvas.toDataURL('image/jpeg', 0.95);
}

const fileOf = async (url) => (await fetch(url)).blob();

/** Listens as long as the page is open. */
export function camera() {
  /** @type {any} */
  let mine = null; // current session: stream, video, and the displayed frame

  async function start() {
    if (mine?.on()) return;
    const off = () => {
      for (const track of own.stream?.getTracks() || []) track.stop();
      if (own.video) own.video.srcObject = null;
      delete document.documentElement.dataset.camera;
    };
    const own = begin(() => fileOf(own.url), off);
    mine = own;
    document.documentElement.dataset.camera = '';
    try {
      own.stream = await navigator.mediaDevices.getUserMedia({ video: WANTED });
      if (!own.on()) return off();
      for (const track of own.stream.getTracks()) track.addEventListener('ended', own.stop);
      own.video = Object.assign(el('video', { muted: true, playsinline: true }), { muted: true });
      own.video.srcObject = own.stream;
      await own.video.play();
      await run(own);
    } catch (problem) {
      if (!own.on()) return;
      own.stop();
      stage()?.fail(problem instanceof Refusal ? problem : new Refusal(why(problem)));
    }
  }

  /** Sends one frame at a time: when a result arrives, the newest frame is sent. */
  async function run(own) {
    const { video } = own;
    let [last, rate, refused, drawn, frames, age] = [0, 0, 0, 0, 0, 0];
    /** @type {any} */
    let size = [224, 224];
    // counted, not listened for: a pending frame callback makes the browser render at every camera frame
    const came = () => video.getVideoPlaybackQuality().totalVideoFrames;
    const another = () => new Promise((resolve) => video.requestVideoFrameCallback(resolve));
    /** Sends the newest frame and returns the result. @type {() => Promise<any>} */
    const taken = async () => {
      // also sends frames of a still camera
      if (came() === last) await Promise.race([another(), pause(STILL)]);
      if (!own.on() || own.kept) return {};
      last = came();
      const [at, url] = [performance.now(), shot(video, size)];
      const [told, bitmap] = await Promise.all([
        own.ask({ frame: url.split(',')[1] }).catch((problem) => ({ problem })),
        fileOf(url).then((blob) => createImageBitmap(blob)),
      ]);
      return { at, url, told, bitmap };
    };
    let next = taken();
    while (own.on() && !own.kept) {
      const { at, url, told, bitmap } = await next;
      if (!told || !own.on()) return;
      if (told.problem) {
        if (++refused > REFUSED) throw told.problem;
        if (own.on()) stage().fail(told.problem);
        await pause(PAUSE);
        next = taken();
        continue;
      }
      [refused, size] = [0, told.size];
      next = taken(); // runs while this frame is drawn
      put(`${told.key}/picture/upload`, bitmap);
      const figures = { rate: rate.toFixed(1), age: Math.round(age) };
      const status = t('{rate} frames a second, {age} ms old', figures);
      await own.show(told, rate ? status : t('The camera is on'));
      if (!own.on()) return;
      const end = performance.now();
      const rated = drawn && 1000 / (end - drawn);
      rate = rate ? SMOOTHED * rate + (1 - SMOOTHED) * rated : rated;
      [own.url, age, drawn] = [url, end - at, end];
      if (!own.kept) document.documentElement.dataset.camera = `${++frames} ${Math.round(age)}`;
    }
  }

  listen('start-camera', start);
  document.addEventListener('visibilitychange', () => document.hidden && mine?.stop());
}
