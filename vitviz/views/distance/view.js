// Attention distance over depth: a dot for each head, or a line for each layer over its heads from near to
// far.

import { chart } from '../../canvas/chart.js';
import { t } from '../../canvas/words.js';

export default () => ({
  title: 'Attention distance',
  items: () => ['distance', 'prefix_mass', 'uniform'],

  build(self) {
    const drawn = chart(self);
    self.figure.append(drawn.node);
    return { drawn };
  },

  draw(self) {
    const { layers, heads } = self.value;
    const { distance, prefix_mass: mass, uniform } = self.data;
    const sorted = self.settings.form === 'sorted';
    const at = (layer, head) => layer * heads + head;
    const all = (count) => Array.from({ length: count }, (_, i) => i);
    const told = (layer, head) => [
      `${distance.values[at(layer, head)].toFixed(1)} px`,
      t('Layer {layer}, head {head}', { layer: layer + 1, head: head + 1 }),
      self.grid.prefix.length
        ? t('{share} of its attention on prefix tokens', { share: mass.values[at(layer, head)].toFixed(3) })
        : '',
    ];
    const order = (layer) =>
      all(heads).sort((a, b) => distance.values[at(layer, a)] - distance.values[at(layer, b)]);
    const open = (layer, head) => self.open?.('explorer', { layer: layer + 1, head: head + 1, show: 'head' });
    const dot = (layer, head, x) => ({
      x,
      y: distance.values[at(layer, head)],
      told: () => told(layer, head),
      pick: () => open(layer, head),
    });
    const mean = (layer) =>
      all(heads).reduce((sum, head) => sum + distance.values[at(layer, head)] / heads, 0);
    const series = sorted
      ? all(layers).map((layer) => ({
          name: t('layer {layer}', { layer: layer + 1 }),
          line: true,
          dots: true,
          shade: layer / Math.max(1, layers - 1),
          points: order(layer).map((head, place) => dot(layer, head, place + 1)),
        }))
      : [
          {
            name: t('one head'),
            dots: true,
            points: all(layers).flatMap((layer) => all(heads).map((head) => dot(layer, head, layer + 1))),
          },
          {
            name: t('mean of the heads'),
            line: true,
            points: all(layers).map((layer) => ({ x: layer + 1, y: mean(layer) })),
          },
        ];
    const { pictures } = self.summary;
    self.ui.drawn.draw({
      title:
        pictures === 1
          ? t('{checkpoint}, one picture', self.value)
          : t('{checkpoint}, mean of {count} pictures', { ...self.value, count: pictures }),
      across: sorted ? t('Heads of a layer, near to far') : t('Network depth (layer)'),
      up: t('Mean attention distance (px)'),
      last: sorted ? heads : layers,
      series,
      level: {
        value: uniform.values[0],
        name: t('uniform attention: {distance} px', { distance: uniform.values[0].toFixed(1) }),
      },
      most: Math.max(...distance.values, uniform.values[0]),
    });
  },
});
