// Tokens of the sequence, what is known of them at a depth, and the room of what explains the figure.

import { patchName, t, tokenName } from '../../frontend/i18n.js';
import { bounds } from '../../frontend/numbers.js';
import { above } from '../../frontend/outliers.js';
import { differs, reach, still } from '../../frontend/shared_scale.js';

/** How many tokens stand before the patches. */
export const skipOf = (self) => self.grid.prefix.length;
export const sizeOf = (self) => self.grid.rows * self.grid.cols;
export const tokensOf = (self) => skipOf(self) + sizeOf(self);

/** Whether all cosines come at once, so that hovering asks for nothing. */
export const small = (self) => self.summary.whole;

/** Whether patches above the limit are framed. */
export const marking = (self) =>
  self.settings.show === 'norms' || (self.settings.mark !== 'off' && self.settings.show !== 'heads');

/** What a token is called. */
export const shortOf = (self, token) =>
  token < skipOf(self) ? tokenName(self.grid.prefix[token]) : patchName(token - skipOf(self));

/** The cosines of one token with every other; null where they have not been fetched. */
export function cosines(self, token) {
  const { cosines: all, line } = self.data;
  const count = tokensOf(self);
  if (all) return all.values.subarray(token * count, (token + 1) * count);
  return token === self.settings.token ? line.values : null;
}

/** Both ends of the scale of cosines, and its colours: about zero without the mean patch. */
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

/** What stands out at this depth: median, MAD, the limit, and the patches above it. */
export const outliers = (self) => above(self.data, self.settings, skipOf(self));

/** The depth and the form of the tokens in view, as titles name them. */
export function where(self) {
  const { depth, norm, show } = self.settings;
  return norm === 'final' && show !== 'norms'
    ? t('depth {depth}, through the final norm', { depth })
    : t('depth {depth}, raw', { depth });
}

/** The room of what explains the figure: as high as it beside it, a third of the window below, or free. */
export function roomOf(self) {
  const [above, own] = [self.figure, self.below].map((node) => node.getBoundingClientRect().top);
  const beside = Math.abs(above - own) < 8;
  return {
    width: Math.max(240, self.across - 4),
    height: !self.room ? 700 : beside ? self.room : window.innerHeight * 0.34,
  };
}
