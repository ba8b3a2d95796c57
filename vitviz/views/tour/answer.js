// Steps 9 to 13: the classifier's input, one logit as a sum of products, and the probabilities; the logit as
// a sum of contributions, the ablation of the largest, and one path back.

import { unpacked } from '../../frontend/data.js';
import { button, div, el, fit, stack, track } from '../../frontend/elements.js';
import { send } from '../../frontend/events.js';
import { t } from '../../frontend/i18n.js';
import { scored } from '../../frontend/numbers.js';
import { strip } from './board.js';
import { beside, digits, folded, pair, plain, shapeOf, sheetOf, summed } from './parts.js';

export const readoutStep = {
  build(self) {
    const read = strip(self, { label: t('The class token after the last layer') });
    const y = strip(self, { label: t('y, the classifier’s input') });
    const buttons = el('div', {
      class: 'vv-buttons',
      role: 'group',
      'aria-label': t('Class'),
      'data-export': 'no',
    });
    const weights = strip(self, { label: t('Weights of the class') });
    const products = strip(self, { label: t('Products') });
    const sum = el('p', { class: 'vv-sum' });
    const title = el('p', { class: 'vv-h' });
    const made = { read, y, buttons, weights, products, sum, title, shown: 0, key: '' };
    made.fold = folded(t('All numbers of this sum'), () => {
      const { y, top } = unpacked(self.data.answer);
      const { weights } = top[made.shown];
      const numbers = y.map((value, i) => [
        String(i + 1),
        ...[value, weights[i], value * weights[i]].map(digits),
      ]);
      return sheetOf([t('Number'), 'y', t('Weight'), t('Product')], plain(numbers), 'vv-dense');
    });
    made.head = stack(title, buttons, weights.node, products.node, sum, made.fold.node);
    made.sign = el('p', { class: 'vv-sign', text: '↓ LN' });
    made.logits = el('div');
    made.node = stack(read.node, made.sign, y.node, made.head, made.logits);
    return made;
  },
  items: () => ['answer'],
  draw(self, made) {
    const { read, y, top } = unpacked(self.data.answer);
    const { across: width } = beside(self);
    const explained = Boolean(top?.[0]?.weights);
    if (made.key !== self.key) [made.key, made.shown] = [self.key, 0];
    made.read.node.hidden = made.sign.hidden = !read;
    const after = t('The class token after layer {layer}', { layer: self.value.layers });
    if (read) made.read.draw(read, { width, text: after });
    made.y.draw(y, { width, text: t('y: {count} numbers', { count: y.length }) });
    made.head.hidden = !explained;
    made.logits.hidden = !top || explained;
    if (!top) return;
    if (!explained)
      return made.logits.replaceChildren(
        sheetOf([t('Class'), t('Logit')], plain(top.map((row) => [t(row.name), digits(row.logit)]))),
      );
    const row = top[made.shown];
    const products = y.map((value, i) => value * row.weights[i]);
    const choose = (i) => {
      made.shown = i;
      self.draw();
      made.buttons.children[i].focus();
    };
    const pressed = (i) => ({ 'aria-pressed': String(i === made.shown) });
    made.buttons.replaceChildren(...top.map(({ name }, i) => button(t(name), () => choose(i), pressed(i))));
    made.title.textContent = t('One logit as a sum');
    const count = y.length;
    const text = t('The classifier’s row for this class: {count} numbers', { count });
    made.weights.draw(row.weights, { width, text });
    made.products.draw(products, { width, text: t('y × weights, number by number') });
    made.sum.textContent = summed(products, row.bias);
    made.fold.fill();
  },
};

export const probabilitiesStep = {
  build() {
    const table = el('div');
    const line = el('p', { class: 'vv-sum vv-line' });
    const text = t('The tour ends with y. The other views do not need a classifier.');
    const none = el('p', { class: 'vv-text', text });
    return { node: stack(table, line, none), table, line, none };
  },
  items: () => ['answer'],
  draw(self, made) {
    const { top, total, shift, classes, each } = unpacked(self.data.answer);
    made.none.hidden = Boolean(top);
    made.table.hidden = made.line.hidden = !top;
    if (!top) return;
    if (self.value.head_type === 'value') {
      made.line.hidden = true;
      const rows = plain(top.map((row) => [t(row.name), digits(row.logit)]));
      return made.table.replaceChildren(sheetOf([t('Output'), t('Value')], rows));
    }
    const heads = [
      t('Class'),
      t('Logit'),
      ...(shift ? [t('− {largest}', { largest: digits(shift) })] : []),
      each ? 'exp(−logit)' : t('exp'),
      t('probability'),
      '',
    ];
    const gap = shift ? ['', ''] : [''];
    const rows = top.map((row) => ({
      cells: [
        t(row.name),
        digits(row.logit),
        ...(shift ? [digits(row.logit - shift)] : []),
        digits(row.power),
        digits(row.probability),
        track(row.probability),
      ],
    }));
    const sum = (name) => top.reduce((a, row) => a + row[name], 0);
    const rest = Math.max(0, 1 - sum('probability'));
    if (classes > top.length && !each)
      rows.push({
        mark: 'vv-rest',
        cells: [
          t('the other {count}', { count: classes - top.length }),
          ...gap,
          digits(Math.max(0, total - sum('power'))),
          digits(rest),
          track(rest),
        ],
      });
    if (!each) rows.push({ mark: 'vv-total', cells: [t('Sum'), ...gap, digits(total), '1', ''] });
    made.table.replaceChildren(sheetOf(heads, rows, 'vv-bars'));
    const [best] = top;
    const score = best.logit - shift;
    const power = digits(best.power);
    const said = [`${t(best.name)}:  exp(${digits(each ? -score : score)}) = ${power}`];
    said.push(`${each ? `1 / (1 + ${power})` : `${power} / ${digits(total)}`} = ${digits(best.probability)}`);
    made.line.textContent = said.join(',  ');
  },
};

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
    made.table.replaceChildren(sheetOf([t('Source'), t('Contribution')], rows));
    const parts = [...lines.map((one) => one.share), rest];
    made.line.textContent = `${parts.map((part) => `(${digits(part)})`).join(' + ')} = ${digits(total)}`;
  },
};

export const withoutStep = {
  build() {
    const title = el('p', { class: 'vv-h' });
    const table = el('div');
    const line = el('p', { class: 'vv-text' });
    const out = button(t('Ablate this head in every view'), null, { 'data-export': 'no' });
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
        'Something is already removed. Restore it, and this step ablates the head with the largest ' +
          'contribution.',
      );
      return;
    }
    made.title.textContent = t('With and without {head}', { head: headName(head) });
    const answer = (found) => (found ? `${found[0]} ${scored(found[1], self.value.head_type)}` : '');
    const answers = before.map((one, i) => [answer(one), answer(after[i])]);
    made.table.replaceChildren(sheetOf([t('With the head'), t('Without the head')], plain(answers)));
    made.line.textContent = t(
      'The logit of {name} was {logit} and is now {left}: it drops by {lost}, while the head’s ' +
        'contribution was {share}.',
      { name, logit: digits(logit), left: digits(left), lost: digits(lost), share: digits(head.share) },
    );
    made.out.onclick = () => send('ablate', { heads: [`${head.layer}.${head.head}`] });
  },
};

export const pathStep = {
  build() {
    const [table, canvas] = [el('div'), el('canvas', { role: 'img' })];
    const line = el('p', { class: 'vv-text' });
    const on = button(t('Follow it in Attribution'), null, { 'data-export': 'no' });
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
      sheetOf([t('From the prediction back'), t('Contribution'), t('everything else')], plain(rows)),
    );
    const { picture } = beside(self, 240);
    const { rows: down, cols, aspect } = shapeOf(self);
    const context = fit(made.canvas, picture, picture * aspect, self.density);
    context.drawImage(self.data.input, 0, 0, picture, picture * aspect);
    const [w, h] = [picture / cols, (picture * aspect) / down];
    context.strokeStyle = '#c46a16';
    context.lineWidth = 3;
    context.strokeRect((patch % cols) * w, Math.floor(patch / cols) * h, w, h);
    made.canvas.setAttribute('aria-label', `${t('The model’s input')}: ${t(lines.at(-1).name)}`);
    made.on.onclick = () => self.open('evidence', { ...asked, show: 'writers', ...settings });
  },
};
