// The sum that balances, in words: of the account, of another method's map, and of what is chosen.

import { patchName } from '../../canvas/names.js';
import { fixed } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';
import { signed, sums, wallOf } from './lines.js';

/** What another method's map explains of the logit, and what it leaves unexplained. */
function tellMap(self, all, picked) {
  const { ui, data } = self;
  const [explained, rest] = data.explained.values;
  const values = data.map.values;
  const nothing = values.every((value) => value <= 0);
  ui.balance.textContent = Number.isNaN(explained)
    ? t('No balance')
    : t('{sum} of {logit}', { sum: fixed(explained, 3), logit: fixed(all.logit, 3) });
  const said = Number.isNaN(explained)
    ? t('The sum of this map means nothing: its numbers only order the patches.')
    : t('Map, prefix and constants together; {rest} is left unexplained.', { rest: fixed(rest, 3) });
  ui.parts.textContent = nothing ? `${t('Nothing positive here.')} ${said}` : said;
  ui.away.hidden = ui.back.hidden = !picked.length;
  ui.away.textContent = picked.length === 1 ? t('Take this patch away') : t('Take these patches away');
  ui.picked.textContent = '';
}

/** The sum, and what of it is chosen: both add up before the reader. */
export function tell(self, picked, [layer, head]) {
  const { ui, grid, data } = self;
  const all = sums(self);
  const names = grid.prefix;
  ui.balance.textContent = t('{sum} of {logit}', {
    sum: fixed(all.sum, 3),
    logit: fixed(all.logit, 3),
  });
  if (self.settings.method !== 'ledger') return tellMap(self, all, picked);
  const lines = [
    [t('patches'), all.patches],
    ...names.map((name, i) => [t('the {name} token', { name: t(name) }), all.prefix[i]]),
    [t('start'), all.start],
    [t('MLPs'), all.mlps],
    [t('biases'), all.biases],
    ...(all.pooling ? [[t('attention pooling'), all.pooling]] : []),
  ];
  ui.parts.textContent = `= ${lines.map(([name, value]) => `${name} ${signed(value)}`).join('  ')}`;
  const share = layer
    ? head
      ? data.heads.values[(layer - 1) * self.value.heads + head - 1]
      : wallOf(self)
          .slice((layer - 1) * self.value.heads, layer * self.value.heads)
          .reduce((a, b) => a + b, 0)
    : null;
  ui.away.hidden = ui.back.hidden = !layer && !picked.length;
  ui.away.textContent = layer
    ? head
      ? t('Take this head away')
      : t('Take these heads away')
    : picked.length === 1
      ? t('Take this patch away')
      : t('Take these patches away');
  if (layer) {
    ui.picked.textContent = t('Chosen: {share}; everything else: {rest}', {
      share: signed(share),
      rest: signed(all.sum - share),
    });
  } else if (picked.length) {
    const sum = picked.reduce((found, cell) => found + data.map.values[cell], 0);
    const name = picked.length === 1 ? patchName(picked[0]) : t('{count} patches', { count: picked.length });
    ui.picked.textContent = t('{name}: {share}, by head at the right; everything else: {rest}', {
      name,
      share: signed(sum),
      rest: signed(all.sum - sum),
    });
  } else {
    ui.picked.textContent = '';
  }
}
