// The glossary: the first occurrence of a term in a sentence or definition shows its definition on hover, tap
// or keyboard focus. docs/glossary.md has the same definitions; a test compares both.

import { el } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { tip } from '../../frontend/pointer.js';

const SAID = [
  t(
    'ablation: Replacing the output of a head or an MLP, usually by its mean over other images; ' +
      'patches are removed (vitviz.Ablation).',
  ),
  t(
    'activation patching: Replacing activations by those of another image: the tokens that enter ' +
      'a layer, or the outputs of heads or MLPs (Ablation(other=…, at=…)).',
  ),
  t('attention: For each head and query, weights that sum to 1 over all keys.'),
  t(
    'CKA: Centred kernel alignment: how similarly two layers represent the same images; about 0 ' +
      'if unrelated, 1 if equal up to rotation and scale.',
  ),
  t('class token: A token that belongs to no patch, put before the patches; most classifiers read it.'),
  t('direct logit attribution: A logit as the sum of the contributions of every head, MLP and bias.'),
  t('entropy: The spread of a row of attention: 0 nats on a single token, ln n if uniform over n tokens.'),
  t('head: One of the parallel attentions of a layer, with its own queries, keys and values.'),
  t(
    'logit: A class’s score before softmax; the difference of two logits is the log odds of one ' +
      'class against the other.',
  ),
  t('logit lens: A prediction from an earlier layer, read by the final norm and classifier.'),
  t('MLP: The part of a layer that processes each token separately.'),
  t('nat: The unit of information for natural logarithms; a bit is 0.69 nats.'),
  t('patch: A square of the image, embedded as one token.'),
  t('register: An extra trained token that belongs to no patch and serves the model as working memory.'),
  t('residual stream: The tokens between layers: each layer reads them and adds its output.'),
  t('rollout: The product of the attention of all layers, with skip connections included.'),
  t('SaCo: Agreement of a map’s values with the patches’ measured effects, from −1 to 1 (Wu et al. 2024).'),
  t('saliency map: A map of how much each patch matters for a prediction.'),
  t(
    'token: A vector that passes through the layers: one for each patch, plus prefix tokens ' +
      '(such as the class token and registers).',
  ),
];
// Longest first, since "logit lens" contains "logit". A single Chinese character is also part of other words,
// so such terms are skipped.
const TERMS = SAID.map((said) => /^(.+?)(?:（.*?）|\(.*?\))?(?:: |：)(.*)$/.exec(said) ?? [])
  .filter(([, term]) => term?.length > 1)
  .sort((one, other) => other[1].length - one[1].length);
const WHERE = '.vitviz-about [data-testid=markdown]';
const NOT = '.katex, code, a, button, h2, .vv-term';

/** Finds a term in a text; as a whole word in scripts that separate words by spaces. */
function found(text, term) {
  const plain = term.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  const word = /^[\x20-\x7e]+$/.test(term) ? `(?<![\\w-])${plain}(?:e?s)?(?![\\w-])` : plain;
  return new RegExp(word, 'i').exec(text);
}

function marked(word, explained) {
  const node = el('dfn', { class: 'vv-term', tabindex: '0', text: word, 'aria-description': explained });
  const show = () => {
    const { left, top } = node.getBoundingClientRect();
    tip.show({ clientX: window.innerWidth < 600 ? -8 : left, clientY: top }, word, explained);
  };
  for (const event of ['pointerenter', 'focus', 'click']) node.addEventListener(event, show);
  for (const event of ['pointerleave', 'blur']) node.addEventListener(event, tip.hide);
  return node;
}

function mark(block) {
  for (const [, term, explained] of TERMS) {
    const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = /** @type {Text} */ (walker.currentNode);
      const hit = text.parentElement?.closest(NOT) ? null : found(text.data, term);
      if (!hit) continue;
      const rest = text.splitText(hit.index);
      rest.data = rest.data.slice(hit[0].length);
      rest.before(marked(hit[0], explained));
      break;
    }
  }
}

export default function part() {
  const marking = () => {
    for (const block of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(WHERE))) {
      if (block.dataset.terms || !block.textContent.trim()) continue;
      block.dataset.terms = '1';
      mark(block);
    }
  };
  marking();
  // a view's texts enter the page when the view is first opened
  new MutationObserver(marking).observe(document.body, { childList: true, subtree: true });
}
