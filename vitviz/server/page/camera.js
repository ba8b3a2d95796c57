// The camera: one frame at a time is sent to the server. When a result arrives, the newest frame is sent and
// the result is drawn, until the camera is stopped.

import { put, Refusal } from '../../frontend/data.js';
import { el, sheet } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { begin, pause, stage } from './live.js';

const WANTED = { width: { ideal: 640 }, height: { ideal: 480 }, facingMode: 'environment' };
const PAUSE = 1000; // ms after which a server that refused a frame is asked again
const STILL = 250; // ms after which a camera that brings no new frame is asked for the same
const REFUSED = 5; // times one after the other
const SMOOTHED = 0.8; // of the rate before, in the one that is told

/** Why there is no camera, in a sentence. */
function why({ name, message }) {
  if (!window.isSecureContext) return t('Browsers allow camera access only over https or on localhost.');
  if (name === 'NotAllowedError')
    return t('Camera access was denied. Allow it in the browser’s settings for this page and retry.');
  if (name === 'NotFoundError' || name === 'TypeError') return t('There is no camera on this device.');
  return t('The camera could not be opened: {reason}', { reason: message });
}

/** The middle of what the camera shows, in the shape and size that the model takes, as a JPEG. */
function shot(video, [height, width]) {
  const { videoWidth: w, videoHeight: h } = video;
  const scale = Math.min(w / width, h / height);
  const [across, down] = [width * scale, height * scale];
  const canvas = sheet(width, height);
  const context = canvas.getContext('2d');
  context.imageSmoothingQuality = 'high';
  context.drawImage(video, (w - across) / 2, (h - down) / 2, across, down, 0, 0, width, height);
  return canvas.toDataURL('image/jpeg', 0.95);
}

const fileOf = async (url) => (await fetch(url)).blob();

/** Listens as long as the page is open. */
export function camera() {
  /** @type {any} */
  let mine = null; // what is under way: its stream and video, and the frame that is shown

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

  /** One frame after the other: the next, the newest there is, is taken when the last has come back. */
  async function run(own) {
    const { video } = own;
    let [last, rate, refused, drawn, frames, age] = [0, 0, 0, 0, 0, 0];
    /** @type {any} */
    let size = [224, 224];
    // not told of each: while it waits to be, the browser draws the page at every frame of the camera
    const came = () => video.getVideoPlaybackQuality().totalVideoFrames;
    const another = () => new Promise((resolve) => video.requestVideoFrameCallback(resolve));
    /** The newest frame, and what the server makes of it. */
    const taken = async () => {
      // a camera that stands still is looked at again
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
      next = taken(); // under way while this one is drawn
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

  document.addEventListener('vitviz:camera', start);
  document.addEventListener('visibilitychange', () => document.hidden && mine?.stop());
}
