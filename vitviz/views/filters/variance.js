// The share of variance of each principal component, a bar for each.

import { fit } from '../../canvas/elements.js';
import { number, ticks } from '../../canvas/numbers.js';
import { still } from '../../canvas/still.js';
import { t } from '../../canvas/words.js';

/** A share as a percentage of two digits or so. */
export const percent = (share) => {
  const places = share >= 0.0995 ? 0 : share >= 0.00995 ? 1 : 2;
  return `${(share * 100).toFixed(places)} %`;
};

/** Share of variance, a bar for each component. */
export function drawVariance(self) {
  const shares = self.data.variance.values;
  const s = self.zoom;
  const width = Math.min(self.wide ? 400 : 300, self.wide ? self.detail : self.width * 0.7 - 24);
  const height = 130 * s;
  const left = 38 * s;
  const right = 8;
  const bottom = 34 * s;
  const top = 8;
  const context = fit(self.ui.chart, width, height, self.density);
  const [, most] = still(self, 'variance', 0, Math.max(...shares) || 1);
  const w = (width - left - right) / shares.length;
  const h = height - bottom - top;
  context.font = `${12 * s}px ${self.colour('font-family')}`;
  const ink = self.colour('color');
  const accent = self.colour('--vv-accent');
  context.fillStyle = context.strokeStyle = ink;
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  for (const value of ticks(0, most * 100, 3)) {
    const y = top + h * (1 - value / 100 / most);
    context.globalAlpha = 0.15;
    context.fillRect(left, y, width - left - right, 1);
    context.globalAlpha = 0.8;
    context.fillText(`${number(value)} %`, left - 5, y);
  }
  shares.forEach((share, i) => {
    context.globalAlpha = i === self.cur ? 1 : 0.45;
    context.fillStyle = i === self.cur ? accent : ink;
    context.fillRect(left + i * w + 1, top + h * (1 - share / most), Math.max(1, w - 2), (h * share) / most);
  });
  context.globalAlpha = 0.8;
  context.fillStyle = ink;
  context.textAlign = 'center';
  context.textBaseline = 'top';
  for (const i of [1, 7, 14, 21, 28].filter((i) => i <= shares.length))
    context.fillText(String(i), left + (i - 0.5) * w, top + h + 4);
  context.fillText(t('component: share of variance'), left + (width - left - right) / 2, height - 14 * s);
  let sum = 0;
  for (const share of shares) sum += share;
  self.ui.chart.setAttribute(
    'aria-label',
    t('Share of variance of each component; all shown together: {share}', { share: percent(sum) }),
  );
}
