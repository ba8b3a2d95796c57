// The ablation of the selected head or layer, and how it changes the prediction.

import { unpacked } from '../../frontend/data.js';
import { button, div, el, say } from '../../frontend/elements.js';
import { send } from '../../frontend/events.js';
import { t } from '../../frontend/i18n.js';
import { fixed, scored } from '../../frontend/numbers.js';
import { ablated, removedHeads } from '../../frontend/removed_patches.js';
import { chosenHeads, shown } from './lines.js';

/** True if the panel beside the map has this row, below its grid of heads. */
export const hasGrid = (self) => shown(self) === 'account';

/** The ablated heads among the selected; without a selection all. */
function restorable(self) {
  const chosen = chosenHeads(self);
  return chosen.length ? chosen.filter((one) => ablated(self, one)) : removedHeads(self);
}

/** A row below the grid: what is selected, its buttons, and the prediction before and after. */
export function change(self) {
  const selected = el('p', { class: 'vv-text' });
  const said = el('p', { class: 'vv-changed', role: 'status' });
  const restore = button(t('Restore'), () => {
    const heads = restorable(self).map(({ layer, head }) => `${layer}.${head}`);
    send('restore', { heads });
  });
  restore.dataset.export = 'no';
  const row = div('vv-change-row', selected, restore);
  return { node: div('vv-change', row, said), row, selected, said, restore };
}

/** Shows the row; `name` is the selection with its contribution. */
export function drawChange(self, made, name) {
  made.node.hidden = !hasGrid(self);
  made.restore.hidden = !restorable(self).length;
  say(made.selected, name || t('Click a head to see its map and to ablate it.'));
  made.selected.dataset.export = name ? 'yes' : 'no';
  made.said.replaceChildren(...(self.value.changed ? before(self) : []));
}

/** The prediction of the original model and image, and the present one. */
function before(self) {
  const { name, scores, logits, now } = unpacked(self.data.change);
  const { head_type } = self.value;
  const arrow = (values, write) => values.map(write).join(' → ');
  const logit = t('logit {change}', { change: arrow(logits, (one) => fixed(one, 2)) });
  const first = scores
    ? arrow(scores, (one) => scored(one, head_type))
    : arrow(logits, (one) => fixed(one, 2));
  return [
    el('strong', { text: `${t(name)}: ${first}` }),
    ...(scores && head_type !== 'value' ? [` (${logit})`] : []),
    ...(now ? [` ${t('Prediction now: {name}.', { name: t(now) })}`] : []),
  ];
}
