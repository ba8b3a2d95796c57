// Tokens of the sequence, their numbers at a depth, and the space of the panel beside the figure.

import { patchName, t, tokenName } from '../../frontend/i18n.js';
import { bounds } from '../../frontend/numbers.js';
import { above } from '../../frontend/outliers.js';
import { differs, reach, still } from '../../frontend/shared_scale.js';

/** Number of prefix tokens. */
export const skipOf = (self) => self.grid.prefix.length;
export const sizeOf = (self) => self.grid.rows * self.grid.cols;
export const tokensOf = (self) => skipOf(self) + sizeOf(self);

/** True if all cosines are sent at once, so that hovering needs no request. */
export const small = (self) => self.summary.whole;

/** True if patches above the limit are framed. */
export const marking = (self) =>
  self.settings.show === 'norms' || (self.settings.mark !== 'off' && self.settings.show !== 'heads');

/** The name of a token. */
export const shortOf = (self, token) =>
  token < skipOf(self) ? tokenName(self.grid.prefix[token]) : patchName(token - skipOf(self));

/** The cosines of one token with all others; null if not fetched. */
export function cosines(self, token) {
  const { cosines: all, line } = self.data;
  const count = tokensOf(self);
  if (all) return all.values.subarray(token * count, (token + 1) * count);
  return token === self.settings.token ? line.values : null;
}

/** Range and colours of the cosine scale; symmetric about zero if the mean patch is subtracted. */
export function scale(self) {
  if (differs(self)) {
    const name = `difference/${self.settings.depth}/${self.settings.norm}/${self.settings.mean}`;
    const most = still(self, name, 0, reach((self.data.cosines || self.data.line).values))[1] || 1;
    return { low: -most, high: most, colours: 'balance' };
  }
  if (self.settings.mean === 'out') return { low: -1, high: 1, colours: 'balance' };
  if (self.ui.scaled !== self.loaded) {
    const values = (self.data.cosines || self.data.line).values;
    [self.ui.scaled, self.ui.lowest] = [self.loaded, bounds(values)[0]];
  }
  const { depth, norm } = self.settings;
  const [low, high] = still(self, `cosines/${depth}/${norm}`, Math.min(self.ui.lowest, 0.99), 1);
  return { low, high, colours: 'viridis' };
}

/** Outliers at this depth: median, MAD, the limit, and the patches above it. */
export const outliers = (self) => above(self.data, self.settings, skipOf(self));

/** The depth and form of the shown tokens, for titles. */
export function where(self) {
  const { depth, norm, show } = self.settings;
  return norm === 'final' && show !== 'norms'
    ? t('depth {depth}, through the final norm', { depth })
    : t('depth {depth}, raw', { depth });
}

/** Space of the panel: as high as the figure if beside it, a third of the window if below, or unlimited. */
export function roomOf(self) {
  const [above, own] = [self.figure, self.below].map((node) => node.getBoundingClientRect().top);
  const beside = Math.abs(above - own) < 8;
  return {
    width: Math.max(160, self.across - 4),
    height: !self.room ? 700 : beside ? self.room : window.innerHeight * 0.34,
  };
}
