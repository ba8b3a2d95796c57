// The film of a training: a slider over its snapshots, aligned with what the model could do at each. Every view follows.

import { el } from '../../canvas/elements.js';
import { ticks } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-film');
  const SVG = 'http://www.w3.org/2000/svg', EDGE = { left: 40, right: 40, top: 8, bottom: 22 }, TALL = 110, THUMB = 16;
  let frames = [], wanted = -1, sent = null, ticket = 0, playing = false, timer = 0, patience = 0, speed = 1, loop = false;

  function svg(tag, attributes, text) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    return node;
  }

  const slider = el('input', { type: 'range', min: 0, step: 1, 'aria-label': t('Training step'), oninput: () => { stop(); go(Number(slider.value)); } });
  const play = el('button', { type: 'button', class: 'vv-film-play', onclick: () => (playing ? stop() : start()) });
  const title = el('h2', { text: t('Training step') }), step = el('strong', { class: 'vv-film-step' }), facts = el('dl', { class: 'vv-film-facts', title: t('Loss in nats and share named rightly, on the validation pictures. The finished model is an average of the weights on the way.') }), plot = svg('svg', { class: 'vv-film-plot', role: 'img' });
  const why = el('p', { class: 'vv-small vv-film-why' });
  const stage = el('div', { class: 'vv-film-stage' }, slider);
  const curve = el('div', { class: 'vv-film-curve', hidden: true }), more = el('button', { type: 'button', class: 'vv-film-more', text: t('Curve'), 'aria-expanded': 'false', onclick: () => unfold(curve.hidden) });
  curve.append(plot, why);
  const pace = el('button', { type: 'button', class: 'vv-film-more vv-film-speed', text: '1×', onclick: faster });
  const round = el('button', {
    type: 'button', class: 'vv-film-more vv-film-loop', text: '↻', 'aria-pressed': 'false', 'aria-label': t('Begin anew at the end'),
    title: t('Begin anew at the end'), onclick: () => { loop = !loop; round.setAttribute('aria-pressed', String(loop)); },
  });
  const now = el('div', { class: 'vv-film-now' }, title, step), options = el('div', { class: 'vv-film-options' }, pace, round, more);
  root.replaceChildren(play, now, stage, facts, options, curve);

  function faster() {
    speed = { 1: 2, 2: 4, 4: 0.5, 0.5: 1 }[speed];
    pace.textContent = (speed < 1 ? '½' : speed) + '×';
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

  root.addEventListener('keydown', (event) => { if (event.key === 'Escape') unfold(false); });

  const percent = (share) => (100 * share).toFixed(1) + ' %';
  const parted = (frame) => frame.averaged && frame !== frames.at(-1); // the training was begun anew from this average
  const named = (frame) => (frame.step === null ? t('finished') : frame.step.toLocaleString('en'));
  const short = (count) => (count < 1000 ? String(count) : +(count / 1000).toFixed(1) + 'k');

  function told(index) {
    const frame = frames[index];
    step.textContent = named(frame);
    title.textContent = t('Training step') + (frame === frames.at(-1) && frame.step !== null ? ' · ' + t('finished') : '');
    const rows = [
      [t('Epoch'), frame.epoch === null ? null : frame.epoch.toFixed(frame.epoch < 10 ? 2 : 1), ''],
      [t('Accuracy'), frame.top1 === null ? null : percent(frame.top1), 'vv-film-top1'],
      [t('Loss'), frame.val_loss === null ? null : frame.val_loss.toFixed(2), 'vv-film-loss'],
    ].filter(([, value]) => value !== null);
    facts.replaceChildren(...rows.flatMap(([name, value, line]) => [el('dt', { text: name, class: line }), el('dd', { text: value })]));
    why.textContent = parted(frame)
      ? t('A part of the training ended here, with the average of its weights. The next part began from it with large steps, so that the accuracy falls at first.')
      : t('A ViT starts without any notion of which patches are neighbours. Every view shows the model as it was at this step.');
    slider.setAttribute('aria-valuetext', [named(frame), ...rows.slice(1).map(([name, value]) => `${name} ${value}`)].join(', '));
  }

  /** Asks for a frame; the views follow when the server has looked at the picture with it. */
  function go(index) {
    wanted = index;
    slider.value = index; // its label changes with the figures, when the answer is there
    if (sent === null) ask();
  }

  /** One question at a time: of many moves of the slider only the last one that waits is asked for. */
  function ask() {
    sent = wanted;
    clearTimeout(patience);
    patience = setTimeout(() => { sent = null; }, 15000); // an answer that never comes does not hold the slider for ever
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

  /** Each snapshot's place on the curve stands over its place on the slider, where that is wide enough for a curve. */
  function align() {
    const track = slider.getBoundingClientRect(), left = root.getBoundingClientRect().left, rim = 15; // padding and border
    const roomy = track.width >= 240 && Math.min(track.left, innerWidth - track.right) > EDGE.left + rim; // beside it, too
    curve.style.left = roomy ? `${track.left - left + THUMB / 2 - EDGE.left - rim}px` : '';
    curve.style.width = roomy ? `${track.width - THUMB + EDGE.left + EDGE.right + 2 * rim}px` : '';
  }

  /** Accuracy and loss over the snapshots, which stand at equal distances as on the slider; the scales are at the sides. */
  function draw(at) {
    if (curve.hidden) return;
    align();
    const wide = plot.parentNode.clientWidth - 28;
    if (wide <= 0) return;
    const right = wide - EDGE.right, low = TALL - EDGE.bottom, x = (index) => EDGE.left + (index * (right - EDGE.left)) / Math.max(1, frames.length - 1);
    const known = (key) => frames.map((frame) => frame[key]).filter((value) => value !== null);
    const most = Math.max(0.1, Math.ceil(Math.max(0, ...known('top1')) * 10) / 10), worst = Math.max(1, Math.ceil(Math.max(0, ...known('val_loss'))));
    const y = (share) => low - share * (low - EDGE.top);
    const line = (key, scale, name) => {
      const points = frames.flatMap((frame, index) => (frame[key] === null ? [] : [`${x(index).toFixed(1)},${y(frame[key] / scale).toFixed(1)}`]));
      return svg('polyline', { class: `vv-film-${name}`, points: points.join(' ') });
    };
    const dot = (key, scale, name) => (frames[at][key] === null ? [] : [svg('circle', { class: `vv-film-${name}`, cx: x(at), cy: y(frames[at][key] / scale), r: 4.5 })]);
    const room = Math.max(1, Math.ceil((34 * frames.length) / (right - EDGE.left))); // every how many steps a label has room
    const labelled = (index) => index === 0 || ((frames.length - 1 - index) % room === 0 && index >= room); // the first, and from the last backwards
    const ticks = frames.flatMap((frame, index) => [
      svg('line', { class: 'vv-film-tick', x1: x(index), x2: x(index), y1: low, y2: low + 4 }),
      ...(labelled(index) && frame.step !== null ? [svg('text', { x: x(index), y: TALL - 4, 'text-anchor': 'middle' }, short(frame.step))] : []),
    ]);
    plot.setAttribute('width', wide);
    plot.setAttribute('height', TALL);
    plot.setAttribute('aria-label', t('Accuracy and loss on the validation pictures at every snapshot'));
    plot.replaceChildren(
      svg('line', { class: 'vv-film-tick', x1: EDGE.left, x2: right, y1: low, y2: low }),
      ...frames.flatMap((frame, index) => (parted(frame) ? [svg('line', { class: 'vv-film-tick', x1: x(index), x2: x(index), y1: EDGE.top, y2: low })] : [])),
      svg('line', { class: 'vv-film-at', x1: x(at), x2: x(at), y1: EDGE.top, y2: low }),
      svg('text', { class: 'vv-film-top1', x: EDGE.left - 6, y: EDGE.top + 4, 'text-anchor': 'end' }, Math.round(100 * most) + ' %'),
      svg('text', { class: 'vv-film-top1', x: EDGE.left - 6, y: low + 4, 'text-anchor': 'end' }, '0 %'),
      svg('text', { class: 'vv-film-loss', x: right + 6, y: EDGE.top + 4 }, String(worst)),
      svg('text', { class: 'vv-film-loss', x: right + 6, y: low + 4 }, '0'),
      line('val_loss', worst, 'loss'), line('top1', most, 'top1'), ...dot('val_loss', worst, 'loss'), ...dot('top1', most, 'top1'), ...ticks,
    );
  }

  function show() {
    const value = props.value || {}, answered = sent !== null && value.ticket === ticket;
    frames = value.frames || [];
    const at = frames.findIndex((frame) => frame.name === value.at);
    root.hidden = at < 0;
    if (root.hidden) return stop();
    slider.max = frames.length - 1;
    const moved = answered && wanted !== sent && wanted < frames.length;
    if (answered) sent = null;
    if (moved) {
      told(at);
      draw(at);
      return ask();
    }
    if (sent !== null) return; // of an earlier question
    if (answered && at !== wanted) stop(); // it was refused
    wanted = at;
    slider.value = at;
    told(at);
    draw(at);
    root.dataset.at = value.at;
    clearTimeout(timer);
    if (playing && at === frames.length - 1 && !loop) stop();
    else if (playing) timer = setTimeout(() => go((at + 1) % frames.length), 900 / speed);
  }

  face();
  new ResizeObserver(() => { if (frames.length) draw(Number(slider.value)); }).observe(root);
  watch('value', show);
  show();
}
