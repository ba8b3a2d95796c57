// The map of one query: its weights and text, the prefix tokens as buttons, and the pinned tokens.

import { tinted } from '../../frontend/colours.js';
import { button, el, sheet, span } from '../../frontend/elements.js';
import { nameOf, t, tokenName } from '../../frontend/i18n.js';
import { fixed, number, total } from '../../frontend/numbers.js';
import { pinned, pinsOf } from '../../frontend/pins.js';
import { leftOut } from '../../frontend/removed_patches.js';
import { differs, labelled, reach, still } from '../../frontend/shared_scale.js';
import { deeper, distanceOf, entropy, first, put, small, tokensOf } from './tokens.js';

/** True if the map shows attention to the token; rollout has only the direction from a token. */
const askedBy = (self) => self.settings.direction === 'column' && self.settings.show !== 'rollout';

/** Every token's weight for one query: a row of the attention, or a column; null if not fetched. */
export function weights(self, token) {
  const { layer, line } = self.data;
  const { show, head } = self.settings;
  const tokens = tokensOf(self);
  const row = !askedBy(self);
  if (show === 'rollout') return token === self.settings.token ? self.ui.collected : null;
  if (!layer) return token === self.settings.token ? line.values : null;
  const heads = show === 'mean' ? Array.from({ length: self.value.heads }, (_, h) => h) : [head - 1];
  self.line ??= new Float32Array(tokens);
  const out = self.line;
  out.fill(0);
  for (const h of heads) {
    const from = h * tokens * tokens + (row ? token * tokens : token);
    const step = row ? 1 : tokens;
    for (let i = 0, at = from; i < tokens; i++, at += step) out[i] += layer.values[at] / heads.length;
  }
  return out;
}

/** Changes the query, on hover. */
export function ask(self, token) {
  if (leftOut(self, token - first(self))) return;
  if (token === self.query || !weights(self, token)) return; // never show weights that have not been fetched
  self.query = token;
  paint(self);
}

/** Makes a token the query; in the score panel, selects or deselects the key to decompose. */
export function chooseToken(self, token) {
  const patch = token - first(self);
  if (leftOut(self, patch)) return;
  const slot = deeper(self) ? self.ui.score.slot : 'token';
  if (slot !== 'token') {
    const name = patch < 0 ? self.grid.prefix[token] : String(patch);
    return self.set(slot, self.settings[slot] === name ? self.control(slot).default : name);
  }
  ask(self, token);
  self.set('token', token);
}

export const coloursOf = (self) => (differs(self) ? 'balance' : self.settings.colormap || 'viridis');

/** The largest weight of a token's map, over the frames of a video. */
function largest(self, token, values, /** @type {any} */ again = undefined) {
  const { show, layer, head, direction } = self.settings;
  const asked = [token, show, layer, head, direction, differs(self)].join('/');
  return still(self, asked, 0, reach(values, first(self)), again)[1];
}

/** The map of the query. */
export function paint(self) {
  const { ui, grid, settings } = self;
  const { rows, cols } = grid;
  const skip = first(self);
  const values = weights(self, self.query);
  if (!values) return;
  ui.weights = values;
  const most = largest(self, self.query, values, (other) => other.data && other.ui.size && paint(other));
  const high = settings.scale === 'shared' && settings.show !== 'rollout' ? self.absolute : most;
  const ends = [differs(self) ? -(high || 1) : 0, high || 1];
  tinted(values, rows, cols, coloursOf(self), ...ends, skip, ui.heat);
  const what = settings.show === 'rollout' ? t('Share of attention over all layers') : t('Attention weight');
  ui.bar.update(coloursOf(self), ...ends, labelled(self, what));
  put(self, ui.asked, self.query);
  const where =
    settings.show === 'rollout'
      ? t('Rollout')
      : settings.show === 'mean'
        ? t('Layer {layer}, mean of heads', settings)
        : t('Layer {layer}, head {head}', settings);
  const token = nameOf(self, self.query);
  const looks = askedBy(self)
    ? t('attention to: {token}', { token })
    : t('attention from: {token}', { token });
  ui.title.textContent = `${where} · ${looks}`;
  const facts = told(self);
  ui.facts.textContent = facts && `${token}: ${facts}`; // the grid may be of another, locked query
  ui.opening.follow(self.query);
  for (let i = 0; i < skip; i++) {
    ui.chips.children[i].lastChild.textContent = settings.show === 'rollout' ? '' : values[i].toFixed(3);
    ui.chips.children[i].setAttribute('aria-pressed', String(i === self.query));
  }
}

export function told(self) {
  const { settings, ui } = self;
  const values = ui.weights;
  if (!values) return '';
  const share = total(values, first(self));
  if (differs(self)) return t('Change summed over all patches: {share}.', { share: fixed(share, 3) });
  const own = entropy(values, 0, values.length).toFixed(2);
  const whole = self.data.entropy.values[settings.head - 1].toFixed(2);
  const distance = distanceOf(self, settings.layer - 1, settings.head - 1).toFixed(1);
  return [
    askedBy(self)
      ? t('Sum of the weights from all patches: {share}.', { share: number(share) })
      : t('On patches: {share}.', { share: share.toFixed(3) }),
    !askedBy(self) && settings.show !== 'rollout' && t('Entropy of this row {value} nats.', { value: own }),
    settings.show === 'head' &&
      t('This head: entropy {value} nats', { value: whole }) +
        t(', distance {value} px.', { value: distance }),
  ]
    .filter(Boolean)
    .join(' ');
}

export function showChips(self) {
  const { chips } = self.ui;
  const names = self.grid.prefix;
  const choose = (token) => {
    self.held = true;
    chooseToken(self, token);
  };
  const chip = (name, i) => {
    const onpointerenter = () => small(self) && !self.held && !deeper(self) && ask(self, i);
    const weight = el('span', { class: 'vv-weight' });
    return button('', () => choose(i), { onpointerenter }, span(tokenName(name)), weight);
  };
  if (chips.childElementCount !== names.length) chips.replaceChildren(...names.map(chip));
  chips.hidden = !names.length;
}

export function showPins(self) {
  const { ui, grid, settings, data } = self;
  const { rows, cols } = grid;
  const list = pinsOf(self);
  const side = Math.max(112, Math.min(150, (self.width - 48) / 4));
  const skip = first(self);
  const parts = list.map((token, i) => {
    const most = (values) =>
      (settings.scale === 'shared' ? self.absolute : largest(self, token, values)) || 1;
    const found =
      data.layer || settings.show === 'rollout'
        ? weights(self, token)
        : data.pinned.values.subarray(i * tokensOf(self), (i + 1) * tokensOf(self));
    const canvas = found
      ? tinted(found, rows, cols, coloursOf(self), differs(self) ? -most(found) : 0, most(found), skip)
      : sheet(cols, rows);
    return pinned(self, i, { token, name: nameOf(self, token), canvas, side });
  });
  ui.pinned.replaceChildren(...parts);
  ui.marks.forEach((mark, i) => put(self, mark, list[i]));
  ui.pin.textContent = t('Pin this token');
  weights(self, self.query);
}
