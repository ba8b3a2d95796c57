// Presentation mode: one view full screen, controlled by keys; and the dialog that lists the keys.

import { access } from '../../frontend/access.js';
import { button, el, origin, seek, seekAll, typing } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { views } from '../../frontend/view_state.js';

// canvas texts of 10.5 px are drawn at 18 px; in windows above 1080 px they grow with the height
const [LARGE, TALL] = [18 / 10.5, 1080];

export default function part(element) {
  const root = element.querySelector('.vv-present');
  const page = document.documentElement;
  const enter = button(t('Present'), () => turn(true), {
    class: 'vv-lecture',
    title: t('Show one view full screen (key F; ? lists all keys)'),
  });
  const leave = button('×', () => turn(false), {
    class: 'vv-leave',
    title: t('Stop presenting'),
    'aria-label': t('Stop presenting'),
  });
  const sheet = el('dialog', { class: 'vv-keys', 'aria-label': t('Keyboard shortcuts') });
  const on = () => page.classList.contains('vv-lecturing');

  function size() {
    if (on())
      page.style.setProperty('--vv-zoom', (LARGE * Math.max(1, window.innerHeight / TALL)).toFixed(3));
    else page.style.removeProperty('--vv-zoom');
  }

  function turn(wanted, full = true) {
    page.classList.toggle('vv-lecturing', wanted);
    size();
    const url = new URL(window.location.href);
    wanted ? url.searchParams.set('present', '1') : url.searchParams.delete('present');
    window.history.replaceState(window.history.state, '', url);
    if (full && wanted)
      page.requestFullscreen?.().catch(() => {}); // if the browser forbids full screen, the window is used
    else if (!wanted && document.fullscreenElement) document.exitFullscreen();
    /** @type {HTMLElement | null} */ (document.activeElement)?.blur?.();
  }

  const shown = () =>
    [...views].find(
      (view) =>
        view.key && !view.value.second && view.name !== 'stage' && view.figure.getClientRects().length,
    );

  /** Goes to the next or previous view; within the tour, to the next or previous step. */
  function walk(step) {
    const tour = shown()?.root.querySelector(step > 0 ? '.vv-next' : '.vv-back');
    if (tour && !tour.disabled) return tour.click();
    const all = seekAll('#vitviz-tabs [role=tab]');
    const at = all.findIndex((tab) => tab.getAttribute('aria-selected') === 'true');
    all[(at + step + all.length) % all.length]?.click();
  }

  /** Steps an integer setting, such as a layer; in rollout, layer 0 means all layers. */
  function count(names, step) {
    const view = shown();
    const name = names.find((one) => view?.control(one));
    if (!name) return;
    const { minimum = 0, maximum } = view.control(name);
    const next = view.settings[name] + step;
    if (next >= minimum && next <= maximum) view.set(name, next);
  }

  function film(step) {
    const slider = seek('#vitviz-film input[type=range]');
    if (!slider?.getClientRects().length) return;
    step > 0 ? slider.stepUp() : slider.stepDown();
    slider.dispatchEvent(new Event('input', { bubbles: true }));
  }

  const play = () => seek('#vitviz-film .vv-film-play')?.click();

  const across = (go) => ({ ArrowLeft: () => go(-1), ArrowRight: () => go(1) });
  const upright = (names) => ({ ArrowUp: () => count(names, 1), ArrowDown: () => count(names, -1) });
  /** @type {[string, string, Record<string, () => void> | null][]} */
  const keys = [
    ['F', t('Start or stop presenting'), null],
    ['← →', t('Previous and next view (in the tour: step)'), across(walk)],
    ['Shift ← →', t('Previous and next training step'), across(film)],
    ['↑ ↓', t('Layer'), upright(['layer', 'alone'])],
    ['Shift ↑ ↓', t('Head'), upright(['head'])],
    [t('Space'), t('Play or stop'), { ' ': play }],
    [
      '← → ↑ ↓, Enter',
      t('Arrow keys move brush or region (Shift: 10 px); Enter starts or ends a stroke'),
      null,
    ],
    ['Esc', t('Stop presenting'), { Escape: () => turn(false) }],
    ['?', t('This list'), null],
  ];
  const listed = keys.flatMap(([key, text]) => [el('dt', {}, el('kbd', { text: key })), el('dd', { text })]);
  const close = el('form', { method: 'dialog' }, el('button', { text: t('Close') }));
  sheet.append(el('h2', { text: t('Keyboard shortcuts') }), el('dl', {}, ...listed), close);

  window.addEventListener('keydown', (event) => {
    if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || typing(origin(event)))
      return;
    const done = () => event.preventDefault();
    if (event.key === '?') {
      done();
      return sheet.open ? sheet.close() : sheet.showModal();
    }
    if (sheet.open) return;
    if (event.key === 'f' || event.key === 'F') {
      done();
      return turn(!on());
    }
    if (!on() || (event.key === ' ' && origin(event).closest?.('button'))) return;
    const shifted = (key) => key.startsWith('Shift') === event.shiftKey;
    const act = keys
      .filter((row) => shifted(row[0]))
      .map((row) => row[2]?.[event.key])
      .find(Boolean);
    if (act && !origin(event).closest?.('[role=tablist], [role=application], input')) {
      done();
      act();
    }
  });
  document.addEventListener('fullscreenchange', () => {
    if (!document.fullscreenElement && on()) turn(false, false);
  });
  window.addEventListener('resize', size);

  access();
  root.hidden = false;
  root.removeAttribute('role');
  root.replaceChildren(enter, leave, sheet);
  if (new URLSearchParams(window.location.search).get('present') === '1') turn(true, false);
}
