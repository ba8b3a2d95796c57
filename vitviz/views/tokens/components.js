// The principal components of the tokens as colours, and one by one.

import { painted, tinted } from '../../frontend/colours.js';
import { el } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { number, percent } from '../../frontend/numbers.js';
import { reach, still } from '../../frontend/shared_scale.js';
import { shared } from './second.js';
import { roomOf, sizeOf, where } from './tokens.js';

/** Where a colour has no fixed meaning: between images and depths that share no basis. */
function limits({ settings: { basis }, value }) {
  if (basis === 'all') return t('A colour has no fixed meaning across images.');
  return value.basis || basis === 'photo'
    ? t('A colour has no fixed meaning across depths.')
    : t('A colour has no fixed meaning across images or depths.');
}

export function drawComponents(self) {
  const { ui, grid, data, settings } = self;
  const { rows, cols } = grid;
  const size = sizeOf(self);
  const { depth } = settings;
  const { width, height } = roomOf(self);
  const scores = data.components.values;
  const share = (c) => percent(data.shares.values[3 * depth + c]);
  const one = Float32Array.from({ length: size }, (_, i) => scores[3 * i]);
  const pixels = data.tints.values.subarray(3 * depth * size, 3 * (depth + 1) * size);
  ui.drawn.show({
    values: one,
    pixels,
    low: 0,
    high: 1,
    colours: 'viridis',
    label: '',
    title: `${t('Principal components')} · ${where(self)}`,
    held: -1,
    said: (cell) =>
      t('Scores of components 1, 2, 3: {values}', {
        values: [0, 1, 2].map((c) => number(scores[3 * cell + c])).join(' · '),
      }),
  });
  const turned =
    settings.tint === 'steady'
      ? t('Colours: all three components, rotated to match the previous depth.')
      : t('Red, green, blue: components 1, 2, 3.');
  ui.facts.hidden = false;
  const of = self.value.basis
    ? ` ${t('The basis is fitted to {count} of the video’s {of} frames.', self.value.basis)}`
    : '';
  const meaning = t('Patches of similar colour have similar values in three components.');
  ui.facts.textContent = `${meaning} ${limits(self)} ${turned}${of}`;
  if (ui.single.childElementCount !== 3) {
    ui.single.replaceChildren(...[0, 1, 2].map(() => el('figure', {}, el('canvas'), el('figcaption'))));
  }
  const aspect = (rows * grid.patch[0]) / (cols * grid.patch[1]);
  const side = Math.min((width - 24) / 3, 170, (height * 0.3) / aspect);
  const asked = [settings.depth, settings.norm, settings.basis].join('/');
  [...ui.single.children].forEach((figure, c) => {
    figure.style.width = `${side}px`;
    const values = Float32Array.from({ length: size }, (_, i) => scores[3 * i + c]);
    const [, most] = still(self, `component/${c}/${asked}`, 0, reach(values) || 1);
    tinted(values, rows, cols, 'balance', -most, most, 0, figure.firstChild).style.cssText =
      `width:${side}px;height:${side * aspect}px;image-rendering:pixelated`;
    figure.lastChild.textContent = t('Component {number}: {share}', {
      number: c + 1,
      share: share(c).replace(' ', '\u00a0'),
    });
  });
  const used = shared(self) ? ui.second.draw({ width, height: 0.8 * height }) : 0;
  if (used) ui.second.colour();
  const bases = { own: t('Every depth, each in its own basis'), all: t('Every depth, one basis for all') };
  const text = self.value.basis
    ? t('Every depth, one basis each for the whole video')
    : (bases[settings.basis] ?? t('Every depth, one common basis each'));
  ui.depths.draw({
    text,
    width,
    height: height - 100 - side * aspect - used,
    most: 200,
    paint: (at, canvas) => painted(data.tints.values, one, rows, cols, canvas, 3 * at * size),
  });
}
