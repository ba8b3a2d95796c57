// The whole way at a glance, before the first step: the picture, its patches, the layers, the answer. A click
// on a part goes to the view that explains it.

import { button, el, span } from '../../canvas/elements.js';
import { open } from '../../canvas/memory.js';
import { percent } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';
import { cutApart } from './map.js';
import { shapeOf } from './parts.js';

const SIDE = 112; // px of the picture, where there is room

/** `node`; `play()`, which lets the parts come one after the other; and `show()`. */
export function overviewOf(self, first) {
  const whole = el('canvas', { 'aria-hidden': 'true' });
  const cut = el('canvas', { 'aria-hidden': 'true' });
  const layers = el('span', { class: 'vv-over-layers', 'aria-hidden': 'true' });
  const answer = el('span', { class: 'vv-over-answer' });
  const sizes = [];
  const part = (name, to, ...drawn) => {
    sizes.push(el('span', { class: 'vv-block-size' }));
    const about = { class: 'vv-over', title: t('See how it is made') };
    const named = el('span', { class: 'vv-block-name', text: name });
    return button('', to, about, el('span', { class: 'vv-over-drawn' }, ...drawn), named, sizes.at(-1));
  };
  const parts = [
    part(t('Picture'), first, whole),
    part(t('Patches'), () => open('patches'), cut),
    part(t('Layers'), () => open('explorer'), layers),
    part(t('Answer'), () => open('evidence'), answer),
  ];
  const arrow = () => el('span', { class: 'vv-sign', 'aria-hidden': 'true', text: '→' });
  const came = ['0', '0.7', '1', '1.7', '2', '4', '4.3']; // of arrow and part, in turns
  const node = el(
    'div',
    {
      class: 'vv-overview',
      role: 'group',
      'aria-label': t('From the picture to the answer'),
      'data-export': 'no',
      'data-slide': 'no',
      onanimationend: ({ animationName }) =>
        animationName === 'vv-answered' && node.classList.remove('vv-plays'),
    },
    ...parts.flatMap((one, i) => (i ? [arrow(), one] : [one])),
  );
  [...node.children].forEach((one, i) => {
    one.style.setProperty('--vv-at', came[i]);
  });

  function show() {
    const { rows, cols, tall, wide, aspect } = shapeOf(self);
    const { top } = self.summary;
    const side = Math.min(SIDE, (node.clientWidth - 90) / 4);
    const [width, height] = aspect > 1 ? [side / aspect, side] : [side, side * aspect];
    cutApart(self, whole, cut, width, height);
    node.style.setProperty('--vv-over', `${side}px`);
    node.style.setProperty('--vv-heads', self.value.heads);
    const { layers: count, heads } = self.value;
    layers.replaceChildren(
      ...Array.from({ length: count }, (_, i) => el('i', { style: `--vv-at:${i / count}` })),
    );
    const bar = (share) => el('span', { class: 'vv-answer-bar', style: `width:${100 * share}%` });
    const line = (share) => el('span', { class: 'vv-answer-track' }, bar(share));
    answer.replaceChildren(...top.map(([name, share]) => el('span', {}, span(t(name)), line(share))));
    const texts = [
      `${cols * wide} × ${rows * tall}`,
      `${rows} × ${cols}`,
      t('{layers} × {heads} heads', { layers: count, heads }),
      top.length ? percent(top[0][1]) : t('No classifier'),
    ];
    texts.forEach((text, i) => (sizes[i].textContent = text));
  }

  return { node, show, play: () => node.classList.add('vv-plays') };
}
