// The first screen: one head, large. The query wanders over the image by itself until the visitor points at
// the figure, touches the page or presses a key. Under prefers-reduced-motion it stands still.

import { aborted, Refusal, unpacked } from '../../frontend/data.js';
import { button, div, el, origin, seek } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { fixed } from '../../frontend/numbers.js';
import { ask } from './query.js';
import { first, small } from './tokens.js';

const STEP = 420; // ms that the query stays on a patch
const ROUND = 96; // steps of one round
const page = document.documentElement;

export function opening(self) {
  let timer = 0;
  let step = 0;
  let begun = false;
  const pause = button('', () => (timer ? stop() : play()));
  const own = () => seek('#vitviz-upload input[type=file]')?.click();
  const whole = () => {
    delete page.dataset.opening;
    self.draw();
  };
  const learn = () => {
    stop();
    page.dataset.opening = 'learning'; // shows the timeline
    seek('.vv-film-play')?.click();
  };
  /** @type {any} */
  let contributions = null; // of every patch to the logit of the prediction
  const said = el('span');
  const filled = el('i');
  const share = el('div', { class: 'vv-opening-share', hidden: true }, said, div('vv-opening-bar', filled));
  const node = el(
    'div',
    { class: 'vv-opening', 'data-export': 'no', hidden: true },
    el('p', {
      text: t(
        'The outlined patch attends to the bright patches. This head copies information from them to ' +
          'the outlined patch.',
      ),
    }),
    share,
    div(
      'vv-buttons',
      button(t('Use your own image'), own, { class: 'vv-opening-own' }),
      button(t('Take the tour'), () => self.open('tour')),
      button(t('Watch this head learn'), learn, { class: 'vv-opening-learn' }),
      pause,
      button(t('Show all controls'), whole),
    ),
  );

  /** Moves the query along a closed curve over the image. */
  function move() {
    if (!self.figure.offsetParent || document.hidden) return;
    const { rows, cols } = self.grid;
    const at = (count, turns) =>
      Math.round(((count - 1) / 2) * (1 + 0.8 * Math.sin((2 * Math.PI * turns * step) / ROUND)));
    ask(self, first(self) + at(rows, 3) * cols + at(cols, 2));
    step += 1;
  }

  /** Shows what the outlined patch contributes to the prediction, through all heads of all layers. */
  function follow(token) {
    const value = contributions?.values[token - first(self)];
    share.hidden = node.hidden || contributions?.key !== self.key || !Number.isFinite(value);
    if (share.hidden) return;
    const about = { value: (value > 0 ? '+' : '') + fixed(value, 3), class: t(contributions.class) };
    said.textContent = t('Contribution of this patch to the logit of {class}: {value}', about);
    const width = (50 * Math.abs(value)) / Math.max(1e-9, ...contributions.values.map(Math.abs));
    filled.className = value < 0 ? 'vv-negative' : '';
    filled.style.cssText = `width:${width}%;left:${value < 0 ? 50 - width : 50}%`;
  }

  /** Fetches the contributions; a model without a classifier has none, which needs no message here. */
  async function weigh() {
    const { key } = self;
    contributions = { key, values: [] };
    const found = await self.get('contributions', self.life.signal).catch((problem) => {
      if (!aborted(problem) && !(problem instanceof Refusal)) console.error(problem);
    });
    if (found && key === self.key) contributions = { key, ...unpacked(found) };
    follow(self.query);
  }

  function play() {
    clearInterval(timer);
    timer = window.setInterval(move, STEP);
    face();
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    face();
  }

  function face() {
    pause.textContent = timer ? t('Pause') : t('Play');
  }

  const taken = (event) => timer && !node.contains(origin(event)) && stop();
  self.figure.addEventListener('pointermove', taken, { capture: true });
  for (const name of ['touchstart', 'keydown'])
    document.addEventListener(name, taken, { signal: self.life.signal, capture: true, passive: true });

  /** Shows or hides the panel; the first time, chooses the head and plays. */
  async function update() {
    node.hidden = !('opening' in page.dataset) || Boolean(self.value.second);
    pause.hidden = !small(self); // a large model's attention is not here as a whole
    if (node.hidden) return timer && stop();
    if (contributions?.key !== self.key) weigh();
    if (begun) return;
    begun = true;
    [self.settings.layer, self.settings.head] = unpacked(await self.get('opening', self.life.signal));
    self.set('layer', self.settings.layer);
    if (small(self) && !window.matchMedia('(prefers-reduced-motion: reduce)').matches) play();
  }

  face();
  return { node, update, follow };
}
