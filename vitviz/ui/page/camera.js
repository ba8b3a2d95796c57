// The camera: one frame at a time goes to the server, the newest when the last has been drawn, and every view
// in view shows it in place of the photograph, until it is stopped. No frame outlasts the next, unless it is
// kept: then it becomes the photograph.

import { asked, forget, put, Refusal } from '../../canvas/data.js';
import { button, el, sheet } from '../../canvas/elements.js';
import { hand } from '../../canvas/handed.js';
import { views } from '../../canvas/memory.js';
import { t } from '../../canvas/words.js';

const WANTED = { width: { ideal: 640 }, height: { ideal: 480 }, facingMode: 'environment' };
const PATIENCE = 15000; // ms that a still that was kept may take to become the photograph
const PAUSE = 1000; // ms after which a server that refused a frame is asked again
const STILL = 250; // ms after which a camera that brings no new frame is asked for the same
const REFUSED = 5; // times one after the other
const SMOOTHED = 0.8; // of the rate before, in the one that is told

const stage = () => [...views].find((one) => one.name === 'stage' && one.root.isConnected);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The views that are seen, but for averages over a set of pictures. */
const seen = () =>
  [...views].filter((one) => {
    const { key, scene } = one.given() || {};
    return one.root.closest('.tabitem')?.checkVisibility() && key && key !== scene;
  });

/** Why there is no camera, in a sentence. */
function why({ name, message }) {
  if (!window.isSecureContext)
    return t('A browser gives its camera only to pages over https, or of this very computer (localhost).');
  if (name === 'NotAllowedError')
    return t('The camera was not allowed. Allow it in the browser’s settings of this page, and try again.');
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
  let now = null; // what is under way: its stream and video, and the frame that is shown
  /** Shows an answer to a frame in all that is seen, or null for the photograph again. */
  async function show(told, status) {
    document.dispatchEvent(new CustomEvent('vitviz:live', { detail: told }));
    const drawn = told ? seen() : [...views];
    const each = drawn.map((one) => {
      const value = told?.figures[one.name]?.[one.given().second ? 1 : 0];
      return told && !value?.key ? null : one.pass(told && { ...value, scene: now.scene });
    });
    if (told) each.push(stage().pass({ ...told.picture, scene: now.scene, told: status }));
    await Promise.all(each);
  }

  async function start(row) {
    if (now) return;
    const mine = { row, before: [...row.children], scene: `camera ${performance.now()}`, last: '' };
    now = mine;
    document.documentElement.dataset.camera = '';
    row.replaceChildren(
      button(t('Keep'), keep, { class: 'vv-keep' }),
      button(t('Stop'), stop, { class: 'vv-stop' }),
    );
    row.firstChild.focus();
    try {
      mine.stream = await navigator.mediaDevices.getUserMedia({ video: WANTED });
      if (now !== mine) return off(mine);
      for (const track of mine.stream.getTracks()) track.addEventListener('ended', () => stop());
      mine.video = Object.assign(el('video', { muted: true, playsinline: true }), { muted: true });
      mine.video.srcObject = mine.stream;
      await mine.video.play();
      await run(mine);
    } catch (problem) {
      if (now !== mine) return;
      stop();
      stage()?.fail(problem instanceof Refusal ? problem : new Refusal(why(problem)));
    }
  }

  /** One frame after the other: the next, the newest there is, is taken when the last is drawn. */
  async function run(mine) {
    const { video } = mine;
    const photo = stage().given().upload;
    let [fresh, rate, refused, drawn] = [true, 0, 0, 0];
    /** @type {any} */
    let [size, waiting] = [[224, 224], null];
    const came = () => {
      fresh = true;
      waiting?.();
      if (now === mine) video.requestVideoFrameCallback(came);
    };
    video.requestVideoFrameCallback(came);
    mine.watch = setInterval(() => !mine.kept && stage()?.given().upload !== photo && stop(), 100);
    while (now === mine && !mine.kept) {
      // a camera that stands still is looked at again
      if (!fresh) await Promise.race([new Promise((resolve) => (waiting = resolve)), pause(STILL)]);
      fresh = false;
      const [at, url] = [performance.now(), shot(video, size)];
      const second = [...views].find((one) => one.given()?.second && one.root.isConnected)?.given().key;
      const names = [...new Set(seen().map((one) => one.name))];
      const question = { frame: url.split(',')[1], views: names, second, last: mine.last };
      const [told, bitmap] = await Promise.all([
        asked(`${stage().given().key}/live`, question).catch((problem) => ({ problem })),
        fileOf(url).then((blob) => createImageBitmap(blob)),
      ]);
      if (told.problem) {
        if (++refused > REFUSED) throw told.problem;
        if (now === mine) stage().fail(told.problem);
        await pause(PAUSE);
        continue;
      }
      const before = mine.last;
      [refused, mine.last, size] = [0, told.key, told.size];
      if (now !== mine) return leave(mine);
      forget(before);
      put(`${told.key}/picture/upload`, bitmap);
      const age = t('{rate} frames a second, {age} ms old', {
        rate: rate.toFixed(1),
        age: Math.round(mine.age),
      });
      await show(told, rate ? age : t('The camera is on'));
      if (now !== mine) return;
      const end = performance.now();
      const rated = drawn && 1000 / (end - drawn);
      rate = rate ? SMOOTHED * rate + (1 - SMOOTHED) * rated : rated;
      Object.assign(mine, { url, age: end - at, frames: (mine.frames || 0) + 1 });
      drawn = end;
      document.documentElement.dataset.camera = `${mine.frames} ${Math.round(mine.age)}`;
    }
  }

  function off(mine) {
    for (const track of mine.stream?.getTracks() || []) track.stop();
    if (mine.video) mine.video.srcObject = null;
  }

  /** The last frame is forgotten everywhere. */
  function leave(mine) {
    if (!mine.last) return;
    forget(mine.last);
    asked(`${mine.last}/live`, { last: mine.last }, true).catch(() => {}); // the server forgets it by itself
  }

  function stop() {
    if (!now) return;
    const mine = now;
    now = null;
    clearInterval(mine.watch);
    off(mine);
    delete document.documentElement.dataset.camera;
    const focused = mine.row.contains(document.activeElement);
    mine.row.replaceChildren(...mine.before);
    if (focused) mine.before.at(-1).focus();
    show(null);
    leave(mine);
  }

  /** The frame in view becomes the photograph, as an upload would. */
  async function keep() {
    const mine = now;
    if (!mine?.url || mine.kept) return;
    mine.kept = true;
    off(mine);
    const photo = stage().given().upload;
    await hand([new File([await fileOf(mine.url)], 'camera.jpg', { type: 'image/jpeg' })]);
    const end = performance.now() + PATIENCE;
    while (now === mine && stage().given().upload === photo && performance.now() < end) await pause(50);
    if (now === mine) stop();
  }

  document.addEventListener('vitviz:camera', ({ target }) =>
    start(/** @type {any} */ (target).parentElement),
  );
  document.addEventListener('visibilitychange', () => document.hidden && stop());
  window.addEventListener('pagehide', () => stop());
  // another photograph, though it be the same once more
  document.addEventListener('click', ({ target }) => {
    if (/** @type {any} */ (target).closest?.('#vitviz-samples button')) stop();
  });
  document.addEventListener('change', ({ target }) => {
    if (!now?.kept && /** @type {any} */ (target).closest?.('#vitviz-upload')) stop();
  });
}
