// The difference of what is shown from the same of the picture as it was: after − before.

import { bounds } from './numbers.js';
import { t } from './words.js';

/** Whether it is in view. */
export const differs = (self) => self.settings.difference === 'on';

/** How far a scale that is even about zero reaches. */
export function reach(...args) {
  const [low, high] = bounds(...args);
  return Math.max(-low, high);
}

/** The label of its scale. */
export const labelled = (self, what) => (differs(self) ? t('{what}: after − before', { what }) : what);
