// Step 6: positions, and live experiments: shuffled patches, and the position embedding set to zero.

import { sentenceOf, unpacked } from '../../frontend/data.js';
import { button, div, el, stack, tops } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { leads } from '../../frontend/lesson_links.js';
import { number } from '../../frontend/numbers.js';
import { board, strip } from './board.js';
import { beside, captioned, largest, pair, patchOf, prose, take } from './parts.js';

/** One result of the experiment: image and three most likely classes, or the similarity of y. */
function answerCard(title, picture, headType) {
  const list = div('vv-tops');
  const head = el('p', { class: 'vv-h' }, ...prose(title));
  const node = div('vv-card', picture.node, stack(head, list));
  return {
    node,
    picture,
    show(answer) {
      node.classList.toggle('vv-waiting', !answer);
      if (!answer) return;
      const value = answer.likeness?.toFixed(4);
      const text = t('Similarity of y to the original (cosine): {value}', { value });
      list.replaceChildren(
        ...(answer.top.length ? tops(answer.top, headType) : [el('p', { class: 'vv-text', text })]),
      );
    },
  };
}

/** Sentences about the two differences, chosen by the numbers. */
function verdict(self, found) {
  const what = self.summary.classes ? t('logit') : t('number of y');
  const same = (difference) => difference.relative < 1e-4;
  const [kept, gone] = [found.with, found.without].map((one) => ({
    what,
    value: number(one?.largest, 2),
    share: number(100 * one?.relative, 2),
  }));
  const first = same(found.with)
    ? t(
        'With positions, this model gives the same prediction for the shuffled image, up to ' +
          'rounding: no {what} differs by more than {value}.',
        kept,
      )
    : t(
        'With positions, shuffling the patches changes the output: a {what} differs by up to ' +
          '{value}, which is {share} % of the largest.',
        kept,
      );
  return `${first} ${zeroed(self, found.without && same(found.without), gone)}`;
}

/**
 * Text on the difference without positions. `same` is a boolean if positions can be zeroed, else null or
 * undefined.
 */
function zeroed({ summary }, same, gone) {
  if (same === null || same === undefined)
    return summary.positions === 'none'
      ? t('Setting E_pos to zero is not applicable, because this model has no position embedding.')
      : t(
          'Setting E_pos to zero is not applicable, because this model’s positions are not (only) a ' +
            'table that can be zeroed.',
        );
  if (same)
    return t(
      'Without E_pos both orders give the same prediction, up to rounding: no {what} differs by more ' +
        'than {value}. The prediction itself means little here, because the model was trained with ' +
        'E_pos.',
      gone,
    );
  return summary.stem
    ? t(
        'Without E_pos a {what} still differs by up to {value}, because the convolutional stem reads ' +
          'across the borders of the patches.',
        gone,
      )
    : t('Without E_pos a {what} still differs by up to {value}.', gone);
}

export const positionsStep = {
  build(self) {
    const from = board(self, { label: t('The image, cut into patches.'), pick: take(self) });
    const strips = [t('Its embedding'), t('The embedding of its position'), t('The sum')].map((label) =>
      strip(self, { label }),
    );
    const signs = ['+', '='].map((text) => el('p', { class: 'vv-sign', text }));
    const sums = stack(strips[0].node, signs[0], strips[1].node, signs[1], strips[2].node);
    const none = el('p', { class: 'vv-text' });
    const pictures = [0, 1, 2, 3].map(() => board(self, { label: t('The image of this experiment') }));
    const titles = [
      t('In order, with E_pos'),
      t('Shuffled, with E_pos'),
      t('In order, E_pos set to zero'),
      t('Shuffled, E_pos set to zero'),
    ];
    const plain = [t('In order'), t('Shuffled')];
    const cards = (self.summary.zeroable ? titles : plain).map((title, i) =>
      answerCard(title, pictures[i], self.value.head_type),
    );
    const anew = () => this.run(self, Object.assign(made, { seed: (made.seed % 999) + 1 }));
    const again = button(t('Shuffle again'), anew, { class: 'vv-shuffle', 'data-export': 'no' });
    const words = el('p', { class: 'vv-text vv-verdict', role: 'status' });
    const text = t('Perturbations: does the order of the patches matter?');
    const title = div('vv-row vv-middle', el('p', { class: 'vv-h', text }), again);
    const said = t('Compare position embeddings in Perturbations:');
    const lesson = leads(self, said, 'experiment', { kind: 'shuffle' });
    const shown = div('vv-cards', ...cards.map((card) => card.node));
    const experiment = div('vv-experiment', title, shown, words, lesson);
    const added = pair(captioned(t('Pick a patch'), from.node), stack(sums, none));
    if (self.summary.zeroable) added.dataset.slide = 'no'; // one idea per slide: the experiment shows it
    const node = stack(added, experiment);
    const made = { node, from, strips, sums, none, cards, words, again, seed: 1, found: null, key: '' };
    return made;
  },
  items: () => ['embedded'],

  draw(self, made) {
    const { picture, rest } = beside(self);
    const patch = patchOf(self);
    const { values, shape } = self.data.embedded;
    const [kinds, count, width] = shape;
    const of = (kind) => values.subarray((kind * count + patch) * width, (kind * count + patch + 1) * width);
    made.from.draw({ width: picture, mark: patch });
    made.sums.hidden = kinds < 2;
    made.none.hidden = kinds > 1;
    made.none.textContent = t(
      'Nothing is added here: the embedding enters the first layer without a table of positions.',
    );
    if (kinds > 1) {
      const before = of(0);
      const after = of(1);
      const added = after.map((value, i) => value - before[i]);
      const most = Math.max(largest(before), largest(after));
      [before, added, after].forEach((vector, i) =>
        made.strips[i].draw(vector, { width: rest, most: i === 1 ? largest(added) : most }),
      );
    }
    if (made.key !== self.key) this.run(self, made);
    else this.show(self, made);
  },

  /** Runs two or three more passes, one per order, without changing the trace. */
  async run(self, made) {
    const { key } = self;
    const { seed } = made;
    const current = () => key === self.key && key === made.key && seed === made.seed;
    [made.key, made.found] = [key, null];
    this.show(self, made);
    made.again.disabled = true;
    try {
      const found = unpacked(await self.array('experiment', `seed=${seed}`));
      if (!current()) return; // another image or order by now
      made.found = { ...found, seed };
      this.show(self, made);
    } catch (problem) {
      if (!current()) return;
      made.words.textContent = t(sentenceOf(problem));
    }
    made.again.disabled = false;
  },

  show(self, made) {
    const { width, ceiling, large, wide } = beside(self);
    const side = !wide && width < 560 ? 96 : Math.min(150 * large, width / 5, ceiling / 4);
    const names = ['original', 'shuffled', 'zeroed', 'both'];
    made.cards.forEach((card, i) => {
      card.picture.draw({ width: side, lined: false, order: i % 2 && made.found ? made.found.order : null });
      card.show(made.found?.answers[names[i]]);
    });
    made.words.replaceChildren(
      ...prose(made.found ? verdict(self, made.found) : t('Running the model again …')),
    );
    made.node.dataset.experiment = made.found ? `${self.key}/${made.found.seed}` : '';
  },
};
