// Shared colour scales: a range only grows across the frames of a video and over two checkpoints. Also scales
// of differences: after − before, relative to the unedited, unablated image.

import { t } from './i18n.js';
import { bounds } from './numbers.js';

const kept = new Map();
const seen = new Map();

/**
 * The range for `name` of a view: everything drawn for this image so far, [low, high] or wider. Reset by
 * another image, training or removal. `again` redraws a neighbouring figure when the range has grown.
 */
export function still(self, name, low, high, again = (other) => other.draw()) {
  const { scene, checkpoint, second, missing } = self.value;
  const training = `${scene}/${String(checkpoint).split('@')[0]}/${JSON.stringify(missing ?? null)}`;
  if (!second && seen.get(self.name) !== training) {
    for (const key of [...kept.keys()]) if (key.startsWith(`${self.name}/`)) kept.delete(key);
    seen.set(self.name, training);
  }
  const key = `${self.name}/${scene}/${name}`;
  const before = kept.get(key) || [Infinity, -Infinity];
  const now = [Math.min(before[0], low), Math.max(before[1], high)];
  if (now[0] === before[0] && now[1] === before[1]) return now;
  kept.set(key, now);
  for (const other of self.beside()) requestAnimationFrame(() => again(other));
  return now;
}

/** True if the difference is shown. */
export const differs = (self) => self.settings.difference === 'on';

/** Half-width of a scale that is symmetric about zero. */
export function reach(...args) {
  const [low, high] = bounds(...args);
  return Math.max(-low, high);
}

/** The label of the scale. */
export const labelled = (self, what) => (differs(self) ? t('{what}: after − before', { what }) : what);
