// Frames of a camera or a video in place of the image: all visible views show the requested frame. A frame is
// dropped with the next one, unless it is kept; then it becomes the image.

import { asked, forget, passed } from '../../frontend/data.js';
import { button } from '../../frontend/elements.js';
import { hand } from '../../frontend/file_drop.js';
import { t } from '../../frontend/i18n.js';
import { addresses } from '../../frontend/requests.js';
import { views } from '../../frontend/view_state.js';

const PATIENCE = 15000; // ms that a still that was kept may take to become the photograph
/** @type {any} */
let now = null;

export const stage = () => [...views].find((one) => one.name === 'stage' && one.root.isConnected);
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The views that are seen, but for averages over a set of pictures. */
export const seen = () =>
  [...views].filter((one) => {
    const { key, scene } = one.given() || {};
    return one.root.closest('.tabitem')?.checkVisibility() && key && key !== scene;
  });

/** The checkpoint beside, if there is one, and what is seen: what an answer is drawn in. */
export const drawnIn = (each = seen()) => ({
  second: [...views].find((one) => one.given()?.second && one.root.isConnected)?.given().key,
  views: [...new Set(each.map((one) => one.name))],
});

/** The items that views were drawn from last, and will ask for next. */
const items = (each) => each.flatMap((one) => (one.given().second ? [] : addresses(one)));

/** Shows an answer to a frame in all that is seen, or null for the photograph again. */
async function show(told, scene, status) {
  const shows = told ? seen() : [...views]; // asked before anything is changed: it needs the page's layout
  if (told) for (const one of [...shows, stage()]) one.reread();
  const each = shows.map((one) => {
    const value = told?.figures[one.name]?.[one.given().second ? 1 : 0];
    return told && !value?.key ? null : one.pass(told && { ...value, scene });
  });
  if (told) each.push(stage().pass({ ...told.picture, scene, told: status }));
  document.dispatchEvent(new CustomEvent('vitviz:live', { detail: told }));
  await Promise.all(each);
}

/** The frames that stand are forgotten everywhere. */
function leave(mine) {
  for (const last of mine.standing.splice(0)) {
    forget(last);
    asked(`${last}/live`, { last }, true).catch(() => {}); // the server forgets it by itself
  }
}

/**
 * Begins: the buttons below the photograph give way to those that keep a frame and stop. `still()` gives the
 * frame in view as a file's bytes; `off()` is called as soon as no other will be asked for.
 */
export function begin(still, off) {
  now?.stop();
  const row = document.querySelector('#vitviz-stage .vv-tools');
  const [before, photo] = [[...row.children], stage().given().upload];
  const scene = `live ${performance.now()}`;
  const mine = { standing: [], drawn: '', kept: false, on: () => now === mine, ask, show: drawn, stop };
  now = mine;
  document.documentElement.dataset.live = '';
  row.replaceChildren(
    button(t('Keep'), keep, { class: 'vv-keep' }),
    button(t('Stop'), stop, { class: 'vv-stop' }),
  );
  /** @type {HTMLElement} */ (row.firstChild).focus();
  const watch = setInterval(() => !mine.kept && stage()?.given().upload !== photo && stop(), 100);

  /** What the server makes of a frame; undefined where all has been stopped meanwhile. */
  async function ask(question) {
    const last = mine.standing.length > 1 ? mine.standing[0] : ''; // the newest is drawn just now
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

  /** The frame in view becomes the photograph, as an upload would. */
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
// another photograph, though it be the same once more
document.addEventListener('click', ({ target }) => {
  if (/** @type {any} */ (target).closest?.('#vitviz-samples button')) now?.stop();
});
document.addEventListener('change', ({ target }) => {
  if (!now?.kept && /** @type {any} */ (target).closest?.('#vitviz-upload')) now?.stop();
});
