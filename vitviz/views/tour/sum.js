// Steps 11 and 12: the logit as a sum of shares, and what happens without the largest of them.

import { button, div, el, stack } from '../../canvas/elements.js';
import { t } from '../../canvas/words.js';
import { digits, sheetOf, unpack } from './parts.js';

const headName = ({ layer, head }) => t('Layer {layer}, head {head}', { layer, head });

export const sumStep = {
  build() {
    const title = el('p', { class: 'vv-h' });
    const table = el('div');
    const line = el('p', { class: 'vv-sum vv-line' });
    return { node: stack(title, table, line), title, table, line };
  },
  async load(self, signal) {
    return { sum: unpack(await self.get('sum', signal)) };
  },
  draw(self, made) {
    const { name, lines, rest, total, logit } = self.data.sum;
    made.node.hidden = !lines;
    if (!lines) return;
    made.title.textContent = t('The logit of {name}', { name });
    const seen = (one) =>
      self.open('evidence', {
        chosen: `${one.layer}.${one.head}`,
        target: 'top',
        method: 'ledger',
        patches: '',
      });
    const rows = [
      ...lines.map((one) => ({ cells: [headName(one), digits(one.share)], pick: () => seen(one) })),
      { mark: 'vv-rest', cells: [t('everything else'), digits(rest)] },
      { mark: 'vv-total', cells: [t('Sum'), digits(total)] },
      { mark: '', cells: [t('the model’s own logit'), digits(logit)] },
    ];
    made.table.replaceChildren(sheetOf([t('Written by'), t('Share')], rows));
    const parts = [...lines.map((one) => one.share), rest];
    made.line.textContent = `${parts.map((part) => `(${digits(part)})`).join(' + ')} = ${digits(total)}`;
  },
};

export const withoutStep = {
  build() {
    const title = el('p', { class: 'vv-h' });
    const table = el('div');
    const line = el('p', { class: 'vv-text' });
    const out = button(t('Take it out in every view'), null, { 'data-export': 'no' });
    const node = stack(title, table, line, div('vv-buttons', out));
    return { node, title, table, line, out };
  },
  async load(self, signal) {
    return { without: unpack(await self.get('without', signal)) };
  },
  draw(self, made) {
    const { lines, before, after, lost, left, logit, name } = self.data.without;
    made.node.hidden = !lines;
    if (!lines) return;
    const [head] = lines;
    made.title.hidden = made.table.hidden = made.out.hidden = !before;
    if (!before) {
      made.line.textContent = t(
        'Something has been taken away already. Put it back, and this step takes out the largest head.',
      );
      return;
    }
    made.title.textContent = t('With and without {head}', { head: headName(head) });
    const percent = (share) => `${(100 * share).toFixed(1)} %`;
    const answer = (found) => (found ? `${found[0]} ${percent(found[1])}` : '');
    made.table.replaceChildren(
      sheetOf(
        [t('With it'), t('Without it')],
        before.map((one, i) => ({ cells: [answer(one), answer(after[i])] })),
      ),
    );
    made.line.textContent = t(
      'The logit of {name} was {logit} and is {left}: it loses {lost}, where the head’s own share ' +
        'was {share}.',
      { name, logit: digits(logit), left: digits(left), lost: digits(lost), share: digits(head.share) },
    );
    made.out.onclick = () =>
      document.dispatchEvent(
        new CustomEvent('vitviz:without', { detail: { heads: [`${head.layer}.${head.head}`] } }),
      );
  },
};
