// What the timeline says of a training.

import { percent } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';
import { drawCurve, parted } from './film_curve.js';

const named = (frame) => (frame.step === null ? t('finished') : frame.step.toLocaleString('en'));

/** @type {any} */
export const training = {
  title: () => t('Training step'),
  plays: () => t('Play the training'),
  curve: () => t('Curve'),
  says: () =>
    t(
      'Loss in nats and share named rightly, on the validation pictures. ' +
        'The finished model is an average of the weights on the way.',
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
            'A part of the training ended here, with the average of its weights. ' +
              'The next part began from it with large steps, so that the accuracy falls at first.',
          )
        : t(
            'A ViT starts without any notion of which patches are neighbours. ' +
              'Every view shows the model as it was at this step.',
          ),
    };
  },
};
