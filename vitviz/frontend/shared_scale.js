// Scales that stand still: over a film's frames, and for two checkpoints side by side, they only widen; and
// those of a difference, after − before, of what is shown from the same of the picture as it was.

import { t } from './i18n.js';
import { bounds } from './numbers.js';

const kept = new Map();
const seen = new Map();

/**
 * The range for `name` of a view that has held everything drawn of this picture so far: [low, high] or wider.
 * Another picture or another training begins anew. `again` draws a figure beside this one, when its range has
 * widened with this.
 */
export function still(self, name, low, high, again = (other) => other.draw()) {
  const { scene, checkpoint, second } = self.value;
  const training = `${scene}/${String(checkpoint).split('@')[0]}`;
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

/** Whether the difference is in view. */
export const differs = (self) => self.settings.difference === 'on';

/** How far a scale that is even about zero reaches. */
export function reach(...args) {
  const [low, high] = bounds(...args);
  return Math.max(-low, high);
}

/** The label of its scale. */
export const labelled = (self, what) => (differs(self) ? t('{what}: after − before', { what }) : what);
