// The timeline: a slider over training snapshots, aligned with the accuracy and loss of each, or over the
// frames of a video. All views follow.

import { button, div, el, marked, seek, svg } from '../../frontend/elements.js';
import { listen } from '../../frontend/events.js';
import { t } from '../../frontend/i18n.js';
import { settled } from '../../frontend/view_state.js';
import { align, training } from './training_curve.js';

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-film');
  let over = training; // what the timeline shows
  let frames = [];
  let wanted = -1;
  /** @type {number | null} */
  let sent = null;
  let ticket = 0;
  let playing = false;
  let timer = 0;
  let patience = 0;
  let speed = 1;
  let loop = false;
  let telling = 0;

  const slider = el('input', {
    type: 'range',
    min: 0,
    step: 1,
    oninput: () => {
      stop();
      go(Number(slider.value));
    },
  });
  const play = button('', () => (playing ? stop() : start()), { class: 'vv-film-play' });
  const title = el('h2');
  const step = el('strong', { class: 'vv-film-step' });
  const facts = el('dl', { class: 'vv-film-facts' });
  const plot = svg('svg', { class: 'vv-film-plot', role: 'img' });
  const why = el('p', { class: 'vv-small vv-film-why' });
  const stage = div('vv-film-stage', slider);
  const curve = el('div', { class: 'vv-film-curve', hidden: true });
  const more = button('', () => unfold(curve.hidden), { class: 'vv-film-more', 'aria-expanded': 'false' });
  curve.append(plot, why);
  const pace = button('1×', faster, { class: 'vv-film-more vv-film-speed' });
  const anew = { title: t('Loop'), 'aria-label': t('Loop') };
  const turns = { class: 'vv-film-more vv-film-loop', 'aria-pressed': 'false', ...anew };
  const round = button('↻', endless, turns);
  const now = div('vv-film-now', title, step);
  const options = div('vv-film-options', pace, round, more);
  root.replaceChildren(play, now, stage, facts, options, curve);

  function faster() {
    speed = { 1: 2, 2: 4, 4: 0.5, 0.5: 1 }[speed];
    pace.textContent = `${speed < 1 ? '½' : speed}×`;
    pace.setAttribute('aria-label', paced());
  }

  const paced = () => t('Speed {speed}', { speed: pace.textContent });
  pace.setAttribute('aria-label', paced());
  pace.title = t('Speed');

  function endless() {
    loop = !loop;
    round.setAttribute('aria-pressed', String(loop));
  }

  function unfold(open) {
    curve.hidden = !open;
    more.setAttribute('aria-expanded', String(open));
    if (open) draw(Number(slider.value));
  }

  root.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') unfold(false);
  });

  function told(at) {
    const said = over.told(frames, at);
    step.textContent = said.step;
    title.textContent = said.title;
    facts.replaceChildren(
      ...said.rows.flatMap(([name, value, line]) => [
        el('dt', { text: name, class: line }),
        el('dd', { text: value }),
      ]),
    );
    why.textContent = said.why;
    const rows = said.rows.slice(-2).map(([name, value]) => `${name} ${value}`);
    slider.setAttribute('aria-valuetext', [said.step, ...rows].join(', '));
  }

  /** Requests a frame; the views follow when the server has run it. */
  function go(index) {
    clearTimeout(timer);
    wanted = index;
    step.classList.add('vv-waiting'); // label and thumb change with the figures
    if (sent === null) ask();
  }

  /** Sends one request at a time: of several slider moves, only the last pending one. */
  function ask() {
    sent = wanted;
    const mine = ++ticket;
    if (over.show) return over.show(sent).then((shown) => shown && answered(mine), stop);
    clearTimeout(patience);
    // a lost response must not block the slider
    patience = setTimeout(() => (sent = null), 15000);
    trigger('frame', { name: frames[wanted].name, ticket });
  }

  /** Called when a video's frame is visible. */
  function answered(mine) {
    if (mine !== ticket) return;
    const at = sent;
    sent = null;
    tell(at);
    if (wanted !== at) ask();
  }

  function start() {
    playing = true;
    face();
    const at = Number(slider.value);
    go(at >= last() || at < first() ? first() : at + 1);
  }

  const first = () => over.first ?? 0;
  const last = () => over.last ?? frames.length - 1;

  function stop() {
    playing = false;
    clearTimeout(timer);
    face();
  }

  function face() {
    play.textContent = playing ? '❚❚' : '▶';
    play.setAttribute('aria-label', playing ? t('Stop') : over.plays());
    play.title = play.getAttribute('aria-label');
  }

  function draw(at) {
    if (curve.hidden) return;
    align(curve, root, slider);
    over.draw(plot, frames, at);
  }

  /** Shows or hides the timeline. */
  function shown(whether) {
    root.hidden = !whether;
    marked(seek('#vitviz-page'), 'film', whether);
  }

  /** Switches to a video, or back to the training. */
  function turn(to) {
    stop();
    [over, sent, ticket] = [to, null, ticket + 1];
    delete root.dataset.at;
    curve.replaceChildren(plot, why, ...(over.tools || []));
    slider.setAttribute('aria-label', over.title());
    facts.title = over.says();
    more.textContent = over.curve();
    face();
    telling += 1;
    if (to === training) return show();
    [frames, wanted] = [to.frames, 0];
    shown(true);
    slider.max = frames.length - 1;
    to.again = () => sent === null && go(wanted);
    to.retell = () => {
      told(Number(slider.value));
      draw(Number(slider.value));
    };
    to.again();
  }

  function show() {
    if (over !== training) return over.again();
    const value = props.value || {};
    const answered = sent !== null && value.ticket === ticket;
    frames = value.frames || [];
    const at = frames.findIndex((frame) => frame.name === value.at);
    shown(at >= 0);
    if (root.hidden) {
      telling += 1;
      return stop();
    }
    slider.max = frames.length - 1;
    const moved = answered && wanted !== sent && wanted < frames.length;
    if (answered) sent = null;
    if (moved) {
      tell(at);
      return ask();
    }
    if (sent !== null) return; // of an earlier request
    if (answered && at !== wanted) stop(); // refused
    wanted = at;
    clearTimeout(timer);
    tell(at);
  }

  /** Updates label and curve together with the figures; then playback may continue. */
  async function tell(at) {
    const mine = ++telling;
    if (root.dataset.at && over === training) await settled(frames[at].name);
    if (mine !== telling || !frames[at]) return; // of an earlier response
    told(at);
    draw(at);
    root.dataset.at = frames[at].name ?? at;
    if (sent !== null) return; // another frame is pending
    slider.value = at;
    step.classList.remove('vv-waiting');
    const ended = at >= last();
    if (playing && ended && !loop) stop();
    else if (playing) {
      const rest = over.pause(at) / speed - (over.took || 0);
      timer = setTimeout(() => go(ended ? first() : at + 1), rest);
    }
  }

  listen('show-snapshot', (name) => {
    const at = frames.findIndex((frame) => frame.name === name);
    if (at < 0 || over !== training || !root.isConnected) return;
    stop();
    go(at);
  });
  listen('timeline', (video) => {
    if (root.isConnected) turn(video || training);
  });
  new ResizeObserver(() => {
    if (frames.length) draw(Number(slider.value));
  }).observe(root);
  watch('value', show);
  turn(training);
}
