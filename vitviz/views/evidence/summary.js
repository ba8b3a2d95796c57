// The sums in words: of the contributions, of another method's map, and of the selection.

import { patchName, t } from '../../frontend/i18n.js';
import { fixed, total } from '../../frontend/numbers.js';
import { ablated } from '../../frontend/removed_patches.js';
import { drawChange, hasGrid } from './change.js';
import { added, balanced, chosenHeads, ofCosine, signed, sums } from './lines.js';
import { likeliest } from './sentences.js';

/** Shows the buttons and the sum of the selection, whose space is always kept. */
function choice(self, some, said, name = '') {
  const { ui } = self;
  const heads = chosenHeads(self);
  const below = hasGrid(self) && (heads.length || !ui.head.hidden);
  const place = below ? ui.made.changed.row : ui.balanced;
  if (ui.away.parentElement !== place) place.append(ui.away, ui.back);
  const gone = heads.length > 0 && heads.every((one) => ablated(self, one));
  ui.away.classList.toggle('vv-unseen', !some || gone);
  ui.back.classList.toggle('vv-unseen', !some);
  drawChange(self, ui.made.changed, name);
  ui.parts.classList.toggle('vv-unseen', Boolean(said));
  ui.picked.textContent = said;
}

/** The part of the logit that another method's map explains, and the rest. */
function tellMap(self, all, picked) {
  const { ui, data } = self;
  const [explained, rest] = data.explained.values;
  const values = data.map.values;
  const nothing = values.every((value) => value <= 0);
  ui.balance.textContent = Number.isNaN(explained)
    ? t('No sum to compare')
    : balanced(self, explained, all.logit);
  const said = Number.isNaN(explained)
    ? t('This map only ranks the patches; its values do not sum to the logit.')
    : t('Sum of map, prefix tokens and constants; {rest} remains unexplained.', { rest: fixed(rest, 3) });
  ui.parts.textContent = nothing ? `${t('No positive values here.')} ${said}` : said;
  choice(self, picked.length > 0, '');
}

/** The sum of all contributions, and the selected part. */
export function tell(self, picked, [layer, head]) {
  const { ui, grid, data } = self;
  const all = sums(self);
  const names = grid.prefix;
  ui.balance.textContent = balanced(self, all.sum, all.logit);
  if (likeliest(self)) {
    ui.parts.textContent = t('Cosines of each patch alone with each class; they do not sum to the logit.');
    return choice(self, picked.length > 0, '');
  }
  if (self.settings.method !== 'ledger') return tellMap(self, all, picked);
  const lines = [
    [t('patches'), all.patches],
    ...names.map((name, i) => [t('the {name} token', { name: t(name) }), all.prefix[i]]),
    [t('start'), all.start],
    [t('MLPs'), all.mlps],
    [t('biases'), all.biases],
    ...(all.pooling ? [[t('attention pooling'), all.pooling]] : []),
    ...(all.norm ? [[t('norm'), all.norm]] : []),
  ];
  const sum = lines.map(([name, value], i) => ` ${added(value, i)} ${name}`).join('');
  ui.parts.textContent = `${ofCosine(self, all.logit)}=${sum}`;
  let [said, name] = ['', ''];
  if (layer) {
    const { heads } = self.value;
    const shares = data.heads.values.slice((layer - 1) * heads, layer * heads);
    const share = head ? shares[head - 1] : shares.reduce((a, b) => a + b, 0);
    said = t('Selected: {share}; everything else: {rest}', {
      share: signed(share),
      rest: signed(all.sum - share),
    });
    const place = head
      ? t('Layer {layer}, head {head}', { layer, head })
      : t('All heads of layer {layer}', { layer });
    name = `${place}: ${signed(share)}`;
  } else if (picked.length) {
    const sum = total(picked.map((cell) => data.map.values[cell]));
    const which = picked.length === 1 ? patchName(picked[0]) : t('{count} patches', { count: picked.length });
    said = t('{name}: {share}, by head in the grid; everything else: {rest}', {
      name: which,
      share: signed(sum),
      rest: signed(all.sum - sum),
    });
    name = `${which}: ${signed(sum)}`;
  }
  choice(self, Boolean(layer) || picked.length > 0, said, name);
}
