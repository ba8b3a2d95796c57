// The film of a training: a slider over its snapshots, aligned with what the model could do at each. Every
// view follows.

import { button, div, el, svg } from '../../canvas/elements.js';
import { settled } from '../../canvas/memory.js';
import { percent } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';
import { align, drawCurve, parted } from './film_curve.js';

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-film');
  let frames = [];
  let wanted = -1;
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
    'aria-label': t('Training step'),
    oninput: () => {
      stop();
      go(Number(slider.value));
    },
  });
  const play = button('', () => (playing ? stop() : start()), { class: 'vv-film-play' });
  const title = el('h2', { text: t('Training step') });
  const step = el('strong', { class: 'vv-film-step' });
  const facts = el('dl', {
    class: 'vv-film-facts',
    title: t(
      'Loss in nats and share named rightly, on the validation pictures. ' +
        'The finished model is an average of the weights on the way.',
    ),
  });
  const plot = svg('svg', { class: 'vv-film-plot', role: 'img' });
  const why = el('p', { class: 'vv-small vv-film-why' });
  const stage = div('vv-film-stage', slider);
  const curve = el('div', { class: 'vv-film-curve', hidden: true });
  const more = button(t('Curve'), () => unfold(curve.hidden), {
    class: 'vv-film-more',
    'aria-expanded': 'false',
  });
  curve.append(plot, why);
  const pace = button('1×', faster, { class: 'vv-film-more vv-film-speed' });
  const round = button(
    '↻',
    () => {
      loop = !loop;
      round.setAttribute('aria-pressed', String(loop));
    },
    {
      class: 'vv-film-more vv-film-loop',
      'aria-pressed': 'false',
      'aria-label': t('Begin anew at the end'),
      title: t('Begin anew at the end'),
    },
  );
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

  function unfold(open) {
    curve.hidden = !open;
    more.setAttribute('aria-expanded', String(open));
    if (open) draw(Number(slider.value));
  }

  root.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') unfold(false);
  });

  const named = (frame) => (frame.step === null ? t('finished') : frame.step.toLocaleString('en'));

  function told(index) {
    const frame = frames[index];
    step.textContent = named(frame);
    title.textContent =
      t('Training step') + (frame === frames.at(-1) && frame.step !== null ? ` · ${t('finished')}` : '');
    const rows = [
      [t('Epoch'), frame.epoch === null ? null : frame.epoch.toFixed(frame.epoch < 10 ? 2 : 1), ''],
      [t('Accuracy'), frame.top1 === null ? null : percent(frame.top1), 'vv-film-top1'],
      [t('Loss'), frame.val_loss === null ? null : frame.val_loss.toFixed(2), 'vv-film-loss'],
    ].filter(([, value]) => value !== null);
    facts.replaceChildren(
      ...rows.flatMap(([name, value, line]) => [
        el('dt', { text: name, class: line }),
        el('dd', { text: value }),
      ]),
    );
    why.textContent = parted(frames, frame)
      ? t(
          'A part of the training ended here, with the average of its weights. ' +
            'The next part began from it with large steps, so that the accuracy falls at first.',
        )
      : t(
          'A ViT starts without any notion of which patches are neighbours. ' +
            'Every view shows the model as it was at this step.',
        );
    slider.setAttribute(
      'aria-valuetext',
      [named(frame), ...rows.slice(1).map(([name, value]) => `${name} ${value}`)].join(', '),
    );
  }

  /** Asks for a frame; the views follow when the server has looked at the picture with it. */
  function go(index) {
    wanted = index;
    step.classList.add('vv-waiting'); // label and knob change with the figures, when the answer is there
    if (sent === null) ask();
  }

  /** One question at a time: of many moves of the slider only the last one that waits is asked for. */
  function ask() {
    sent = wanted;
    clearTimeout(patience);
    patience = setTimeout(() => {
      sent = null;
    }, 15000); // an answer that never comes does not hold the slider for ever
    trigger('frame', { name: frames[wanted].name, ticket: ++ticket });
  }

  function start() {
    playing = true;
    face();
    go(Number(slider.value) === frames.length - 1 ? 0 : Number(slider.value) + 1);
  }

  function stop() {
    playing = false;
    clearTimeout(timer);
    face();
  }

  function face() {
    play.textContent = playing ? '❚❚' : '▶';
    play.setAttribute('aria-label', playing ? t('Stop') : t('Play the training'));
    play.title = play.getAttribute('aria-label');
  }

  function draw(at) {
    if (curve.hidden) return;
    align(curve, root, slider);
    drawCurve(plot, frames, at);
  }

  function show() {
    const value = props.value || {};
    const answered = sent !== null && value.ticket === ticket;
    frames = value.frames || [];
    const at = frames.findIndex((frame) => frame.name === value.at);
    root.hidden = at < 0;
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
    if (sent !== null) return; // of an earlier question
    if (answered && at !== wanted) stop(); // it was refused
    wanted = at;
    clearTimeout(timer);
    tell(at);
  }

  /** The label and the curve change with the figures and not before them; then the film may go on. */
  async function tell(at) {
    const mine = ++telling;
    if (root.dataset.at) await settled(frames[at].name);
    if (mine !== telling || !frames[at]) return; // of an earlier answer
    told(at);
    draw(at);
    root.dataset.at = frames[at].name;
    if (sent !== null) return; // another frame is on its way
    slider.value = at;
    step.classList.remove('vv-waiting');
    if (playing && at === frames.length - 1 && !loop) stop();
    else if (playing) timer = setTimeout(() => go((at + 1) % frames.length), 900 / speed);
  }

  document.addEventListener('vitviz:step', (/** @type {CustomEvent} */ event) => {
    const at = frames.findIndex((frame) => frame.name === event.detail);
    if (at < 0 || !root.isConnected) return;
    event.preventDefault();
    stop();
    go(at);
  });
  face();
  new ResizeObserver(() => {
    if (frames.length) draw(Number(slider.value));
  }).observe(root);
  watch('value', show);
  show();
}
