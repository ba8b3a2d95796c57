// Curves of removal in two panels on one scale: the most relevant patches first, and the least relevant.

import { follow } from '../../canvas/dots.js';
import { el, svg } from '../../canvas/elements.js';
import { number, ticks } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';

const COLOURS = ['var(--vv-blue)', 'var(--vv-orange)', '#2a8a63']; // the first three of the ranking
const CONTROLS = ['random', 'centre'];

/** The colour of a method: of the first three of the ranking one each; of the others that of the ink. */
export function colourOf(method, names) {
  const place = names.filter((name) => !CONTROLS.includes(name)).indexOf(method);
  return place >= 0 && place < COLOURS.length ? COLOURS[place] : 'currentColor';
}

/** The plot; `draw(names, run)` draws what is known. A method under the pointer tells its numbers. */
export function curves(self, { title, pick, of }) {
  const plot = svg('svg', { class: 'vv-chart vv-curves', role: 'application', tabindex: 0 });
  const node = el('div', { class: 'vv-plot' }, plot);
  let points = [];
  let held = '';
  let last = null;

  const told = (point) => {
    const { name, side, step, value, share } = point;
    const first =
      side === 'most'
        ? t('{share} % removed, most relevant first', { share })
        : t('{share} % removed, least relevant first', { share });
    return [shown(value), title(name), first, step === 0 ? t('the whole picture') : ''];
  };
  const shown = (value) => (self.settings.score === 'logit' ? number(value) : `${number(100 * value)} %`);
  follow(self, plot, {
    points: () => points,
    mark: (point) => {
      if (held === (point?.name ?? '')) return;
      held = point?.name ?? '';
      if (last) draw(...last);
    },
    rows: () => ({ ArrowUp: -(points[0]?.jump ?? 0), ArrowDown: points[0]?.jump ?? 0 }),
  });

  function draw(names, run) {
    last = [names, run];
    const { score, method } = self.settings;
    const stacked = self.width < 520;
    const sides = ['most', 'least'];
    const width = Math.max(260, self.width);
    const height = Math.max(stacked ? 230 : 150, Math.min(self.tall, stacked ? 560 : 620) - 16);
    const known = names.map((name) => [name, of(name)]);
    const random = of('random');
    const band = random && !random.refused && random.band;
    const all = known.flatMap(([, one]) => sides.flatMap((side) => one[side][score]));
    const low = score === 'logit' ? Math.min(0, ...all) : 0;
    const high = score === 'logit' ? Math.max(1, ...all) : 1;
    const parts = [];
    const size = self.zoom;
    const box = { left: 50 * size, top: 24 * size, right: 8 * size, bottom: 38 * size };
    const between = 20 * size; // one above the other they share the name of their axis
    const across = (stacked ? width : width / 2) - box.left - box.right;
    const down = stacked ? (height - 2 * box.top - between - box.bottom) / 2 : height - box.top - box.bottom;
    points = [];
    sides.forEach((side, place) => {
      const at = stacked ? [0, place * (box.top + down + between)] : [(place * width) / 2, 0];
      const x = (share) => at[0] + box.left + share * across;
      const y = (value) => at[1] + box.top + (1 - (value - low) / (high - low)) * down;
      parts.push(...frame(side, x, y, low, high, score, !stacked || place > 0));
      if (band)
        parts.push(
          svg('polygon', { class: 'vv-chance', points: bandOf(band[side][score], random.shares, x, y) }),
        );
      for (const [name, one] of known) {
        const found = one[side][score].map((value, step) => {
          const share = Math.round(100 * one.shares[step]);
          return {
            name,
            side,
            step,
            left: x(one.shares[step]),
            top: y(value),
            jump: 2 * one.shares.length,
            told: () => told({ name, side, step, value, share }),
            pick: () => pick(name),
          };
        });
        const strong = name === held || name === method;
        const colour = strong ? 'var(--vv-accent)' : colourOf(name, names);
        const quiet = colour === 'currentColor' && !CONTROLS.includes(name);
        parts.push(
          svg('polyline', {
            points: found.map((p) => `${p.left.toFixed(1)},${p.top.toFixed(1)}`).join(' '),
            fill: 'none',
            stroke: colour,
            'stroke-width': strong ? 3.2 : quiet ? 1.1 : 2,
            opacity: strong ? 1 : quiet ? 0.45 : 0.95,
            'stroke-dasharray': name === 'random' ? '6 4' : name === 'centre' ? '2 3' : undefined,
            'data-method': name,
          }),
        );
        points.push(...found);
      }
    });
    points.sort(
      (a, b) =>
        names.indexOf(a.name) - names.indexOf(b.name) ||
        (a.side === b.side ? a.step - b.step : a.side === 'most' ? -1 : 1),
    );
    plot.setAttribute('width', width);
    plot.setAttribute('height', height);
    plot.setAttribute(
      'aria-label',
      [
        t('What the model answers as patches are taken away, by method.'),
        t('Arrow keys move, Enter picks.'),
      ].join(' '),
    );
    plot.replaceChildren(...parts);
  }

  return { node, draw };
}

/** The outline of what random maps reach, from its lower and its upper ends. */
function bandOf([lower, upper], shares, x, y) {
  const ends = (values) =>
    shares.map((share, step) => `${x(share).toFixed(1)},${y(values[step]).toFixed(1)}`);
  return [...ends(lower), ...ends(upper).reverse()].join(' ');
}

function frame(side, x, y, low, high, score, named) {
  const said = (value) => (score === 'logit' ? number(value) : `${Math.round(100 * value)} %`);
  const head =
    side === 'most' ? t('Most relevant first: lower is better') : t('Least relevant first: higher is better');
  return [
    svg('text', { class: 'vv-axis', x: x(0), y: y(high) - 10, 'text-anchor': 'start' }, head),
    ...ticks(low, high, 4).flatMap((value) => [
      svg('line', { class: 'vv-grid', x1: x(0), x2: x(1), y1: y(value), y2: y(value) }),
      svg('text', { x: x(0) - 6, y: y(value) + 4, 'text-anchor': 'end' }, said(value)),
    ]),
    ...[0, 0.25, 0.5, 0.75, 1].map((share) =>
      svg(
        'text',
        { x: x(share), y: y(low) + 16, 'text-anchor': share === 1 ? 'end' : share ? 'middle' : 'start' },
        `${100 * share} %`,
      ),
    ),
    named &&
      svg(
        'text',
        { class: 'vv-axis', x: (x(0) + x(1)) / 2, y: y(low) + 33, 'text-anchor': 'middle' },
        t('patches taken away'),
      ),
  ].filter(Boolean);
}
