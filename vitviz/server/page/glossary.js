// The glossary: the first of each of its words in a sentence or a definition says what it is when it is
// pointed at, tapped or reached by the keyboard. docs/glossary.md is the same; a test holds both together.

import { el } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { tip } from '../../frontend/pointer.js';

const SAID = [
  t(
    'ablation: A head, MLP or patch is taken away, and the model is run again without it ' +
      '(vitviz.Ablation).',
  ),
  t(
    'activation patching: From a layer on, the tokens are those of another picture (Ablation(other=…, ' +
      'at=…)).',
  ),
  t(
    'attention: How a query’s reading is shared among the keys: a row of numbers that sum to 1, for ' +
      'each head.',
  ),
  t('CKA: Centred kernel alignment: how alike two layers find the same pictures, from 0 to 1.'),
  t('class token: A token of no patch, put in front, which most classifiers read.'),
  t(
    'direct logit attribution: The account in Evidence: every head, MLP and bias with what it adds to a ' +
      'logit; the lines sum to it.',
  ),
  t('entropy: How widely a row of attention is spread: 0 nats on one token, ln n evenly over n.'),
  t('head: One of the parallel attentions of a layer, with queries, keys and values of its own.'),
  t('logit: A class’s score before softmax; differences of logits are logarithms of odds.'),
  t(
    'logit lens: The answer forming: every depth read by the final norm and head, as if it were the ' +
      'last.',
  ),
  t('MLP: The part of a layer that works on each token by itself.'),
  t('nat: The unit of information with the natural logarithm; a bit is 0.69 nats.'),
  t('patch: A square of the picture, from which one token is made.'),
  t('register: A further token of no patch, trained so that the model has room to write.'),
  t('residual stream: The tokens between layers: each layer reads them and adds what it has found.'),
  t('rollout: Attention of all layers multiplied through, the skip connection counted in.'),
  t('SaCo: Whether patches that a map puts higher really count for more, from −1 to 1 (Wu et al. 2024).'),
  t('saliency map: Any map of which patches count for an answer; Trial holds them against each other.'),
  t('token: A vector that goes through the layers: one for each patch, and those in front.'),
];
// the longer first: a logit lens is no logit; one Chinese character alone is part of other words
const TERMS = SAID.map((said) => /^(.+?)(?:（.*?）|\(.*?\))?(?:: |：)(.*)$/.exec(said) ?? [])
  .filter(([, term]) => term?.length > 1)
  .sort((one, other) => other[1].length - one[1].length);
const WHERE = '.vitviz-about [data-testid=markdown]';
const NOT = '.katex, code, a, button, .vv-term';

/** Where a term begins in a text, as a word of its own where words are told apart by spaces. */
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
      const hit = text.parentElement.closest(NOT) ? null : found(text.data, term);
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
  // the texts of a view are in the page from when it is first opened
  new MutationObserver(marking).observe(document.body, { childList: true, subtree: true });
}
