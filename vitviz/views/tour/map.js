// Figure 1 of the paper as a map of the tour: the current model, from the image at the bottom to the
// prediction at the top. Each block opens its step; the current step's blocks are highlighted. Before the
// first step, an overview in four parts: a click on a part opens the view that explains it.

import { button, div, el, fit, span } from '../../frontend/elements.js';
import { t, tokenName } from '../../frontend/i18n.js';
import { scored } from '../../frontend/numbers.js';
import { open } from '../../frontend/view_state.js';
import { drawPatch, shapeOf, told } from './parts.js';

const SHOWN = 5; // patches in a row

/** One block: a button with the name of its step, a label, and sizes. */
function blockOf(self, block) {
  const { steps, diagram } = self.summary;
  const at = steps.findIndex((step) => step.name === block.step);
  const [name, size] = [block.name, block.size].map((text) => text && told(text, diagram.values));
  const title = t('Step {step}: {title}', { step: at + 1, title: t(steps[at].title) });
  const about = {
    class: block.there ? 'vv-block' : 'vv-block vv-without',
    'aria-label': `${title}. ${[name, size].filter(Boolean).join(', ')}`,
    title,
    'data-to': block.step,
  };
  const named = el('span', { class: 'vv-block-name', text: name });
  const sized = size && el('span', { class: 'vv-block-size', text: size });
  return button('', () => self.set('step', at + 1), about, named, sized);
}

/** A chip for each kind of prefix token, and for the patches. */
function sequence(self) {
  const { front, tokens } = self.summary.diagram;
  const kinds = { class: 'cls', distillation: 'dist', register: 'reg' };
  const chips = front.map(([kind, count]) => {
    const title = kind === 'register' ? t('registers') : tokenName(kind);
    const text = count > 1 ? `${count} ${kinds[kind]}` : kinds[kind];
    return el('span', { class: 'vv-token vv-learned', title, text });
  });
  const before = front.reduce((sum, [, count]) => sum + count, 0);
  const patches =
    tokens - before > 3
      ? [1, 2, '…', tokens - before]
      : Array.from({ length: tokens - before }, (_, i) => i + 1);
  return [...chips, ...patches.map((number) => el('span', { class: 'vv-token', text: String(number) }))];
}

/** A part of the encoder with its norm and residual connection; only for pre-norm models. */
function branch(plain, block) {
  if (!plain) return block;
  const norm = el('span', { class: 'vv-norm', text: 'LN' });
  return div('vv-branch', norm, block, el('span', { class: 'vv-plus', text: '+' }));
}

const level = (kind, ...parts) => el('li', { class: `vv-level ${kind}` }, ...parts);

/** The map of a model: `node`, and `show(step)`, which highlights a step's blocks and draws its images. */
export function mapOf(self) {
  const { blocks, plain, norm } = self.summary.diagram;
  const made = blocks.map((block) => ({ block, node: blockOf(self, block) }));
  const [picture, patches, flat, embedding, token, positions, attention, mlp, encoder, ...rest] = made.map(
    ({ node }) => node,
  );
  const [readout, probabilities, ...last] = rest;
  const canvases = [picture, patches, flat].map((button) => {
    const canvas = el('canvas', { 'aria-hidden': 'true' });
    button.prepend(canvas);
    return canvas;
  });
  token.prepend(el('span', { class: 'vv-sequence', 'aria-hidden': 'true' }, ...sequence(self)));
  const inside = div('vv-encoder', branch(plain, attention), branch(plain, mlp), encoder);
  const node = el(
    'nav',
    { class: 'vv-map', 'aria-label': t('The model as in figure 1 of the paper'), 'data-export': 'no' },
    el(
      'ol',
      { class: 'vv-levels' },
      level('vv-two', picture, patches),
      level('', flat),
      level('', embedding),
      level('', token),
      level('', positions),
      ...(norm ? [level('', el('span', { class: 'vv-norm', text: 'LN' }))] : []),
      level('vv-whole', inside),
      level('', readout),
      level('', probabilities),
      level('vv-two', ...last),
    ),
  );
  const show = (step) => {
    for (const { block, node: button } of made) {
      const here = block.step === step;
      here ? button.setAttribute('aria-current', 'step') : button.removeAttribute('aria-current');
    }
    inside.classList.toggle('vv-lit', step === 'layers');
    paint(self, canvases);
  };
  return { node, show };
}

/** Draws the image, and the image cut into patches, each as large as a box. */
function cutApart(self, whole, cut, width, height) {
  const { rows, cols } = shapeOf(self);
  fit(whole, width, height, self.density).drawImage(self.data.input, 0, 0, width, height);
  const context = fit(cut, width, height, self.density);
  const [w, h] = [width / cols, height / rows];
  const gap = Math.min(1.5, w * 0.25);
  for (let i = 0; i < rows * cols; i++)
    drawPatch(self, context, i, [(i % cols) * w, Math.floor(i / cols) * h, w - gap, h - gap]);
}

/** Draws the image, the image cut into patches, and the first patches in a row. */
function paint(self, canvases) {
  const [whole, cut, row] = canvases;
  const { rows, cols, tall, wide, aspect } = shapeOf(self);
  const em = parseFloat(getComputedStyle(whole).fontSize);
  const [width, height] = aspect > 1 ? [(2.9 * em) / aspect, 2.9 * em] : [2.9 * em, 2.9 * em * aspect];
  cutApart(self, whole, cut, width, height);
  const side = 1.3 * em;
  const count = Math.min(SHOWN, rows * cols);
  const line = fit(row, count * (side + 2), (side * tall) / wide, self.density);
  for (let i = 0; i < count; i++) drawPatch(self, line, i, [i * (side + 2), 0, side, (side * tall) / wide]);
}

const SIDE = 112; // px of the image, if there is space

/** The overview: `node`; `play()` shows the parts one after another; `show()` draws them. */
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
    part(t('Image'), first, whole),
    part(t('Patches'), () => open('patches'), cut),
    part(t('Layers'), () => open('explorer'), layers),
    part(t('Prediction'), () => open('evidence'), answer),
  ];
  const arrow = () => el('span', { class: 'vv-sign', 'aria-hidden': 'true', text: '→' });
  // relative start times of part and arrow, alternately
  const came = ['0', '0.7', '1', '1.7', '2', '4', '4.3'];
  const node = el(
    'div',
    {
      class: 'vv-overview',
      role: 'group',
      'aria-label': t('From the image to the prediction'),
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
    const { layers: count, heads, head_type } = self.value;
    layers.replaceChildren(
      ...Array.from({ length: count }, (_, i) => el('i', { style: `--vv-at:${i / count}` })),
    );
    const bar = (share) => el('span', { class: 'vv-answer-bar', style: `width:${100 * share}%` });
    const line = (share) => el('span', { class: 'vv-answer-track' }, bar(share));
    const bars = head_type === 'value' ? () => '' : line; // a regression value is no fraction
    answer.replaceChildren(...top.map(([name, share]) => el('span', {}, span(t(name)), bars(share))));
    const texts = [
      `${cols * wide} × ${rows * tall}`,
      `${rows} × ${cols}`,
      t('{layers} × {heads} heads', { layers: count, heads }),
      top.length ? scored(top[0][1], head_type) : t('No classifier'),
    ];
    texts.forEach((text, i) => (sizes[i].textContent = text));
  }

  return { node, show, play: () => node.classList.add('vv-plays') };
}
