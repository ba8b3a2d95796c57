// Frames of a camera or a video in place of the image: all visible views show the requested frame. A frame is
// dropped with the next one, unless it is kept; then it becomes the image.

import { asked, forget, passed } from '../../frontend/data.js';
import { button, seek } from '../../frontend/elements.js';
import { send } from '../../frontend/events.js';
import { hand } from '../../frontend/file_drop.js';
import { t } from '../../frontend/i18n.js';
import { addresses } from '../../frontend/requests.js';
import { views } from '../../frontend/view_state.js';

const PATIENCE = 15000; // ms that a kept frame may take to become the image
/** @type {any} */
let now = null;

export const stage = () => [...views].find((one) => one.name === 'stage' && one.root.isConnected);
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Visible views, except averages over an image set. */
export const seen = () =>
  [...views].filter((one) => {
    const { key, scene } = one.given() || {};
    return one.root.closest('.tabitem')?.checkVisibility() && key && key !== scene;
  });

/** The second checkpoint, if any, and the visible views, which a response is drawn in. */
export const drawnIn = (each = seen()) => ({
  second: [...views].find((one) => one.given()?.second && one.root.isConnected)?.given().key,
  views: [...new Set(each.map((one) => one.name))],
});

/** The items that the views drew last, and will request next. */
const items = (each) => each.flatMap((one) => (one.given().second ? [] : addresses(one)));

/** Shows a frame's result in all visible views, or the image again for null. */
async function show(told, scene, status) {
  const shows = told ? seen() : [...views]; // before any change, because the check needs the page's layout
  if (told) for (const one of [...shows, stage()]) one.reread();
  const each = shows.map((one) => {
    const value = told?.figures[one.name]?.[one.given().second ? 1 : 0];
    return told && !value?.key ? null : one.pass(told && { ...value, scene });
  });
  if (told) each.push(stage().pass({ ...told.picture, scene, told: status }));
  send('live-frame', told);
  await Promise.all(each);
}

/** Deletes the session's frames here and on the server. */
function leave(mine) {
  for (const last of mine.standing.splice(0)) {
    forget(last);
    asked(`${last}/live`, { last }, true).catch(() => {}); // the server also deletes frames by itself
  }
}

/**
 * Starts a camera or video session: the buttons below the image are replaced by Keep and Stop. `still()`
 * returns the current frame as a file's bytes; `off()` is called as soon as no further frame will be
 * requested.
 */
export function begin(still, off) {
  now?.stop();
  const row = seek('#vitviz-stage .vv-tools');
  const [before, photo] = [[...row.children], stage().given().upload];
  const scene = `live ${performance.now()}`;
  /** @type {string[]} */
  const standing = []; // keys of frames that the server holds
  const mine = { standing, drawn: '', kept: false, on: () => now === mine, ask, show: drawn, stop };
  now = mine;
  document.documentElement.dataset.live = '';
  row.replaceChildren(
    button(t('Keep'), keep, { class: 'vv-keep' }),
    button(t('Stop'), stop, { class: 'vv-stop' }),
  );
  row.firstChild.focus();
  const watch = setInterval(() => !mine.kept && stage()?.given().upload !== photo && stop(), 100);

  /** Requests a frame's result; undefined if the session has ended meanwhile. */
  async function ask(question) {
    const last = mine.standing.length > 1 ? mine.standing[0] : ''; // the newest frame is being drawn
    const each = seen();
    const asking = { ...drawnIn(each), items: items(each), ...question, last };
    const told = await passed(`${stage().given().key}/live`, asking);
    mine.standing = [...mine.standing.filter((one) => one !== last), told.key];
    if (now !== mine) return leave(mine);
    forget(last);
    return told;
  }

  async function drawn(told, status) {
    await show(told, scene, status);
    mine.drawn = told.key;
  }

  function stop() {
    if (now !== mine) return;
    now = null;
    clearInterval(watch);
    off();
    delete document.documentElement.dataset.live;
    const focused = row.contains(document.activeElement);
    row.replaceChildren(...before);
    if (focused) /** @type {HTMLElement} */ (before.at(-1)).focus();
    show(null);
    leave(mine);
  }

  /** Makes the current frame the image, like an upload. */
  async function keep() {
    if (!mine.drawn || mine.kept) return;
    mine.kept = true;
    off();
    await hand([new File([await still()], 'frame.jpg', { type: 'image/jpeg' })]);
    const end = performance.now() + PATIENCE;
    while (now === mine && stage().given().upload === photo && performance.now() < end) await pause(50);
    stop();
  }

  return mine;
}

window.addEventListener('pagehide', () => now?.stop());
// another image was chosen, possibly the current one again
document.addEventListener('click', ({ target }) => {
  if (/** @type {any} */ (target).closest?.('#vitviz-samples button')) now?.stop();
});
document.addEventListener('change', ({ target }) => {
  if (!now?.kept && /** @type {any} */ (target).closest?.('#vitviz-upload')) now?.stop();
});
