// Text and curve of a training in the timeline: accuracy and loss at every snapshot, above the slider.

import { svg } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { percent } from '../../frontend/numbers.js';

const EDGE = { left: 40, right: 40, top: 8, bottom: 22 };
const TALL = 110;
const THUMB = 16;

/** True if training was restarted from this snapshot, an average of weights. */
const parted = (frames, frame) => frame.averaged && frame !== frames.at(-1);

const short = (count) => (count < 1000 ? String(count) : `${+(count / 1000).toFixed(1)}k`);

/** Width of the padding and the border at one side. */
function inset(node) {
  const { paddingLeft, borderLeftWidth } = getComputedStyle(node);
  return Number.parseFloat(paddingLeft) + Number.parseFloat(borderLeftWidth);
}

/**
 * Aligns each snapshot's point on the curve with its position on the slider, if the slider is wide enough for
 * a curve.
 */
export function align(curve, root, slider) {
  const track = slider.getBoundingClientRect();
  const left = root.getBoundingClientRect().left;
  const rim = inset(curve);
  const beside = Math.min(track.left, innerWidth - track.right);
  const roomy = track.width >= 240 && beside > EDGE.left + rim;
  curve.style.left = roomy ? `${track.left - left + THUMB / 2 - EDGE.left - rim}px` : '';
  curve.style.width = roomy ? `${track.width - THUMB + EDGE.left + EDGE.right + 2 * rim}px` : '';
}

/** Draws accuracy and loss over equally spaced snapshots, as on the slider; the scales are at the sides. */
function drawCurve(plot, frames, at) {
  const wide = plot.parentNode.offsetWidth - 2 * inset(plot.parentNode);
  if (wide <= 0) return;
  const right = wide - EDGE.right;
  const low = TALL - EDGE.bottom;
  const x = (index) => EDGE.left + (index * (right - EDGE.left)) / Math.max(1, frames.length - 1);
  const known = (key) => frames.map((frame) => frame[key]).filter((value) => value !== null);
  const most = Math.max(0.1, Math.ceil(Math.max(0, ...known('top1')) * 10) / 10);
  const worst = Math.max(1, Math.ceil(Math.max(0, ...known('val_loss'))));
  const y = (share) => low - share * (low - EDGE.top);
  const line = (key, scale, name) => {
    const points = frames.flatMap((frame, index) =>
      frame[key] === null ? [] : [`${x(index).toFixed(1)},${y(frame[key] / scale).toFixed(1)}`],
    );
    return svg('polyline', { class: `vv-film-${name}`, points: points.join(' ') });
  };
  const dot = (key, scale, name) =>
    frames[at][key] === null
      ? []
      : [svg('circle', { class: `vv-film-${name}`, cx: x(at), cy: y(frames[at][key] / scale), r: 4.5 })];
  // interval of snapshots at which a label fits
  const room = Math.max(1, Math.ceil((34 * frames.length) / (right - EDGE.left)));
  // the first, and every `room`-th from the last backwards
  const labelled = (index) => index === 0 || ((frames.length - 1 - index) % room === 0 && index >= room);
  const ticks = frames.flatMap((frame, index) => [
    svg('line', { class: 'vv-film-tick', x1: x(index), x2: x(index), y1: low, y2: low + 4 }),
    ...(labelled(index) && frame.step !== null
      ? [svg('text', { x: x(index), y: TALL - 4, 'text-anchor': 'middle' }, short(frame.step))]
      : []),
  ]);
  plot.setAttribute('width', wide);
  plot.setAttribute('height', TALL);
  plot.setAttribute('aria-label', t('Accuracy and loss on the validation images at every snapshot'));
  plot.replaceChildren(
    svg('line', { class: 'vv-film-tick', x1: EDGE.left, x2: right, y1: low, y2: low }),
    ...frames.flatMap((frame, index) =>
      parted(frames, frame)
        ? [svg('line', { class: 'vv-film-tick', x1: x(index), x2: x(index), y1: EDGE.top, y2: low })]
        : [],
    ),
    svg('line', { class: 'vv-film-at', x1: x(at), x2: x(at), y1: EDGE.top, y2: low }),
    svg(
      'text',
      { class: 'vv-film-top1', x: EDGE.left - 6, y: EDGE.top + 4, 'text-anchor': 'end' },
      `${Math.round(100 * most)} %`,
    ),
    svg('text', { class: 'vv-film-top1', x: EDGE.left - 6, y: low + 4, 'text-anchor': 'end' }, '0 %'),
    svg('text', { class: 'vv-film-loss', x: right + 6, y: EDGE.top + 4 }, String(worst)),
    svg('text', { class: 'vv-film-loss', x: right + 6, y: low + 4 }, '0'),
    line('val_loss', worst, 'loss'),
    line('top1', most, 'top1'),
    ...dot('val_loss', worst, 'loss'),
    ...dot('top1', most, 'top1'),
    ...ticks,
  );
}

const named = (frame) => (frame.step === null ? t('finished') : frame.step.toLocaleString('en'));

/** @type {any} */
export const training = {
  title: () => t('Training step'),
  plays: () => t('Play the training'),
  curve: () => t('Curve'),
  says: () =>
    t(
      'Loss (nats) and accuracy on the validation images. The finished model averages ' +
        'weights collected during training.',
    ),
  pause: () => 900,
  draw: drawCurve,
  told(frames, at) {
    const frame = frames[at];
    const ended = frame === frames.at(-1) && frame.step !== null;
    return {
      step: named(frame),
      title: t('Training step') + (ended ? ` · ${t('finished')}` : ''),
      rows: [
        [t('Epoch'), frame.epoch === null ? null : frame.epoch.toFixed(frame.epoch < 10 ? 2 : 1), ''],
        [t('Accuracy'), frame.top1 === null ? null : percent(frame.top1), 'vv-film-top1'],
        [t('Loss'), frame.val_loss === null ? null : frame.val_loss.toFixed(2), 'vv-film-loss'],
      ].filter(([, value]) => value !== null),
      why: parted(frames, frame)
        ? t(
            'A training phase ended here by averaging its weights. The next phase restarts from ' +
              'this average with a high learning rate, so accuracy drops at first.',
          )
        : t(
            'At step 0 a ViT has no information about which patches are neighbours. All views ' +
              'show the model at the chosen step.',
          ),
    };
  },
};
