// What the heads have in common: how many tokens each looks at, and how alike those of a block are.

import { tokenName } from '../../canvas/names.js';
import { number } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';
import { blockOf, byHead, roomOf, tokensOf } from './tokens.js';

/** The matrix of all heads, and how alike those of one block are. */
export function drawHeads(self) {
  const { ui, data, settings } = self;
  const { layers, heads } = self.value;
  const looked = settings.measure === 'looked';
  const { width, height } = roomOf(self);
  const values = byHead(self, 'entropy', (nats) => (looked ? Math.exp(nats) : nats));
  const text = looked
    ? t('Tokens that each head looks at')
    : t('Entropy of each head’s attention, patches as queries');
  const label = looked
    ? t('Tokens looked at, of {count}', { count: tokensOf(self) })
    : t('Entropy in nats; even attention has {most}', { most: number(Math.log(tokensOf(self))) });
  ui.heads.draw({
    values,
    rows: heads,
    cols: layers,
    width: self.width,
    height: self.tall - 60,
    most: 64,
    ends: [looked ? 1 : 0, looked ? tokensOf(self) : Math.log(tokensOf(self))],
    colours: 'viridis',
    across: t('block'),
    down: t('head'),
    text,
    label,
    col: blockOf(self) - 1,
  });
  const cosine = settings.alike === 'cosine';
  const found = data[settings.alike].values;
  const title = cosine
    ? t('Likeness of the heads of block {block}: cosine of their attention', { block: blockOf(self) })
    : t('Difference of the heads of block {block}: Jensen-Shannon divergence', { block: blockOf(self) });
  ui.alike.draw({
    values: found,
    rows: heads,
    cols: heads,
    width,
    height: height - 80,
    most: 56,
    ends: cosine ? [0, 1] : [0, Math.LN2],
    colours: cosine ? 'viridis' : 'magma',
    across: t('head'),
    down: t('head'),
    text: title,
    label: cosine ? t('Cosine') : t('Nats, at most {most}', { most: number(Math.LN2) }),
    col: -1,
  });
}

/** The tooltip of a head. */
export function head(self, head, block) {
  const nats = self.data.entropy.values[block * self.value.heads + head];
  const { prefix_entropy: own } = self.data;
  const names = self.grid.prefix;
  const prefix = names.slice(0, 2).map((name, i) =>
    t('{token} as the query: {value} nats', {
      token: tokenName(name),
      value: number(own.values[(block * self.value.heads + head) * names.length + i]),
    }),
  );
  return [
    t('Layer {layer}, head {head}', { layer: block + 1, head: head + 1 }),
    t('{count} tokens looked at, entropy {value} nats', {
      count: number(Math.exp(nats)),
      value: number(nats),
    }),
    ...prefix,
  ];
}

/** The tooltip of two heads. */
export function pair(self, one, other) {
  const value = self.data[self.settings.alike].values[one * self.value.heads + other];
  return [
    t('Heads {one} and {other}', { one: one + 1, other: other + 1 }),
    self.settings.alike === 'cosine'
      ? t('cosine {value}', { value: value.toFixed(3) })
      : t('{value} nats apart', { value: number(value) }),
  ];
}
