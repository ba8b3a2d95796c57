// The waterfall: from the start through every layer's attention and MLP to the logit.

import { fit } from '../../canvas/elements.js';
import { number, ticks } from '../../canvas/numbers.js';
import { still } from '../../canvas/still.js';
import { t } from '../../canvas/words.js';
import { drawShares } from './account.js';
import { asked, signed } from './lines.js';

/** Start, then every layer's attention and MLP, biases, and the logit at which they arrive. */
export function steps(self, sums) {
  const { heads, layers } = self.value;
  const wall = self.data.heads.values;
  const { mlps, biases } = self.data;
  /** @type {{ name: string, label: string, value: number, mlp?: boolean }[]} */
  const found = [{ name: t('start'), label: t('start'), value: sums.start }];
  for (let l = 0; l < layers; l++) {
    let attention = biases.values[l];
    for (let h = 0; h < heads; h++) attention += wall[l * heads + h];
    found.push({
      name: t('Layer {layer}, attention', { layer: l + 1 }),
      label: String(l + 1),
      value: attention,
    });
    found.push({
      name: t('Layer {layer}, MLP', { layer: l + 1 }),
      label: '',
      value: mlps.values[l],
      mlp: true,
    });
  }
  const rest = sums.biases - biases.values.reduce((a, b) => a + b, 0) + sums.pooling;
  found.push({ name: t('biases'), label: t('bias'), value: rest });
  return found;
}

/** The waterfall and the wall. */
export function drawWaterfall(self, made, sums) {
  const some = self.settings.patches !== '';
  const size = self.zoom;
  const width = Math.max(260, self.below.clientWidth);
  const room = self.below.clientHeight || 520;
  const tall = Math.max(130 * size, Math.min(260 * size, room * 0.42));
  const context = fit(made.chart, width, tall, self.density);
  const ink = self.colour('color');
  made.title.textContent = t('The account, from the start to the logit');
  const found = steps(self, sums);
  const [left, right, top, bottom] = [44 * size, 8, 8 * size, 34 * size];
  let sum = 0;
  const bars = (some ? [] : found).map((one) => {
    const from = sum;
    sum += one.value;
    return { ...one, from, to: sum };
  });
  const values = bars.flatMap((bar) => [bar.from, bar.to]);
  const widest = Math.max(0, ...values) || 1;
  const [low, high] = still(self, `account/${asked(self)}`, Math.min(0, ...values), widest); // over a film
  const y = (value) => top + (1 - (value - low) / (high - low)) * (tall - top - bottom);
  const w = (width - left - right) / (found.length + 1);
  context.font = `${12 * self.zoom}px ${self.colour('font-family')}`;
  context.fillStyle = ink;
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  if (!some) {
    for (const value of ticks(low, high, 4)) {
      context.globalAlpha = 0.14;
      context.fillRect(left, y(value), width - left - right, 1);
      context.globalAlpha = 0.85;
      context.fillText(number(value), left - 6, y(value));
    }
  }
  bars.forEach((bar, i) => {
    context.globalAlpha = bar.mlp ? 0.55 : 1;
    context.fillStyle = bar.value >= 0 ? '#c46a16' : '#2f7fc0';
    context.fillRect(
      left + i * w + 1,
      Math.min(y(bar.from), y(bar.to)),
      Math.max(2, w - 2),
      Math.max(1.5, Math.abs(y(bar.to) - y(bar.from))),
    );
  });
  context.globalAlpha = 1;
  context.fillStyle = ink;
  context.fillRect(
    left + bars.length * w + 1,
    Math.min(y(0), y(sum)),
    Math.max(3, w - 2),
    some ? 0 : Math.max(1.5, Math.abs(y(sum) - y(0))),
  );
  context.textAlign = 'center';
  context.textBaseline = 'top';
  const every = Math.max(1, Math.ceil((15 * size) / (2 * w)));
  bars.forEach((bar, i) => {
    const numbered = /^\d+$/.test(bar.label);
    const shown = bar.label && (!numbered || (Number(bar.label) - 1) % every === 0);
    if (shown && numbered) context.fillText(bar.label, left + (i + 1) * w, tall - bottom + 4 * size);
  });
  context.textAlign = 'left';
  if (!some) {
    context.fillText(t('start'), left, tall - 14 * size);
    context.textAlign = 'center';
    context.fillText(t('layer: attention, MLP (pale)'), left + (width - left - right) / 2, tall - 14 * size);
    context.textAlign = 'right';
    context.fillText(t('logit'), width - right, tall - 14 * size);
  }
  made.chart.parentElement.hidden = some;
  made.title.hidden = some;
  made.chart.setAttribute('aria-label', bars.map((bar) => `${bar.name} ${signed(bar.value)}`).join(', '));
  made.said.textContent = some
    ? ''
    : t('Attention that an early layer moved counts where it is read in the end: these are direct shares.');
  made.legend.replaceChildren();
  made.depthAt = null;
  drawShares(self, made, {
    values: self.data.heads.values,
    some,
    room: room - (some ? 0 : tall + 70 * size),
    width,
  });
}
