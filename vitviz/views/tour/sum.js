// Steps 11 to 13: the logit as a sum of shares, what happens without the largest of them, and one path back.

import { unpacked } from '../../canvas/data.js';
import { button, div, el, fit, stack } from '../../canvas/elements.js';
import { percent } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';
import { beside, digits, pair, plain, shapeOf, sheetOf } from './parts.js';

const asked = { target: 'top', relative: 'no', method: 'ledger', patches: '', difference: 'off' };
const headName = ({ layer, head }) => t('Layer {layer}, head {head}', { layer, head });

export const sumStep = {
  build() {
    const title = el('p', { class: 'vv-h' });
    const table = el('div');
    const line = el('p', { class: 'vv-sum vv-line' });
    return { node: stack(title, table, line), title, table, line };
  },
  items: () => ['sum'],
  draw(self, made) {
    const { name, lines, rest, total, logit } = unpacked(self.data.sum);
    made.node.hidden = !lines;
    if (!lines) return;
    made.title.textContent = t('The logit of {name}', { name });
    const seen = (one) => self.open('evidence', { ...asked, chosen: `${one.layer}.${one.head}` });
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
  items: () => ['without'],
  draw(self, made) {
    const { lines, before, after, lost, left, logit, name } = unpacked(self.data.without);
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
    const answer = (found) => (found ? `${found[0]} ${percent(found[1])}` : '');
    const answers = before.map((one, i) => [answer(one), answer(after[i])]);
    made.table.replaceChildren(sheetOf([t('With it'), t('Without it')], plain(answers)));
    made.line.textContent = t(
      'The logit of {name} was {logit} and is {left}: it loses {lost}, where the head’s own share ' +
        'was {share}.',
      { name, logit: digits(logit), left: digits(left), lost: digits(lost), share: digits(head.share) },
    );
    const detail = { heads: [`${head.layer}.${head.head}`] };
    made.out.onclick = () => document.dispatchEvent(new CustomEvent('vitviz:without', { detail }));
  },
};

export const pathStep = {
  build() {
    const [table, canvas] = [el('div'), el('canvas', { role: 'img' })];
    const line = el('p', { class: 'vv-text' });
    const on = button(t('Follow it in Evidence'), null, { 'data-export': 'no' });
    const node = stack(table, pair(canvas, stack(line, div('vv-buttons', on))));
    return { node, table, canvas, line, on };
  },
  items: () => ['path'],
  draw(self, made) {
    const { name, logit, lines, patch, settings, reason } = unpacked(self.data.path);
    made.node.hidden = !lines && !reason;
    made.table.hidden = made.canvas.hidden = made.on.hidden = !lines;
    made.line.textContent = lines ? t('An orange frame marks the patch.') : t(reason ?? '');
    if (!lines) return;
    const all = [{ name, share: logit }, ...lines];
    const rest = (i) => (i ? digits(all[i - 1].share - all[i].share) : '');
    const rows = all.map((one, i) => [t(one.name), digits(one.share), rest(i)]);
    made.table.replaceChildren(
      sheetOf([t('From the answer back'), t('Share'), t('everything else')], plain(rows)),
    );
    const { picture } = beside(self, 240);
    const { rows: down, cols, aspect } = shapeOf(self);
    const context = fit(made.canvas, picture, picture * aspect, self.density);
    context.drawImage(self.data.input, 0, 0, picture, picture * aspect);
    const [w, h] = [picture / cols, (picture * aspect) / down];
    context.strokeStyle = '#c46a16';
    context.lineWidth = 3;
    context.strokeRect((patch % cols) * w, Math.floor(patch / cols) * h, w, h);
    made.canvas.setAttribute('aria-label', `${t('What the model gets')}: ${t(lines.at(-1).name)}`);
    made.on.onclick = () => self.open('evidence', { ...asked, show: 'writers', ...settings });
  },
};
