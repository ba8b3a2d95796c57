// Curves of removal in two panels on one scale: the most relevant patches first, and the least relevant.

import { el } from '../../canvas/elements.js';
import { number, ticks } from '../../canvas/numbers.js';
import { tip } from '../../canvas/tip.js';
import { t } from '../../canvas/words.js';

const SVG = 'http://www.w3.org/2000/svg';
const COLOURS = ['var(--vv-blue)', 'var(--vv-orange)', '#2a8a63']; // the first three of the ranking
const CONTROLS = ['random', 'centre'];

function svg(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== undefined) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

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
  let current = -1;
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
  const select = (index, event) => {
    const point = points[index];
    if (!point) return leave();
    current = index;
    if (held !== point.name) [held] = [point.name, last && draw(...last, point.name)];
    self.root.dataset.cur = index;
    const box = plot.getBoundingClientRect();
    tip.show(event ?? { clientX: box.left + point.x, clientY: box.top + point.y }, ...told(point));
  };
  const leave = () => {
    if (current < 0) return;
    [current, held] = [-1, ''];
    delete self.root.dataset.cur;
    tip.hide();
    if (last) draw(...last);
  };
  const nearest = (event) => {
    const box = plot.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = -1;
    let least = 30 ** 2;
    points.forEach((point, i) => {
      const away = (point.x - x) ** 2 + (point.y - y) ** 2;
      if (away < least) [best, least] = [i, away];
    });
    return best;
  };
  const follow = (event) => {
    const found = nearest(event);
    if (found < 0) leave();
    else select(found, event);
  };
  plot.addEventListener('pointermove', follow);
  plot.addEventListener('pointerdown', follow);
  plot.addEventListener('pointerleave', leave);
  plot.addEventListener('blur', leave);
  plot.addEventListener('click', () => current >= 0 && pick(points[current].name));
  plot.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') return leave();
    if ((event.key === 'Enter' || event.key === ' ') && current >= 0) {
      event.preventDefault();
      return pick(points[current].name);
    }
    const step =
      { ArrowLeft: -1, ArrowRight: 1 }[event.key] ??
      (points.length && { ArrowUp: -points[0].jump, ArrowDown: points[0].jump }[event.key]);
    if (!step) return;
    event.preventDefault();
    select(Math.max(0, Math.min(points.length - 1, current < 0 ? 0 : current + step)));
    if (current >= 0) self.say(told(points[current]).filter(Boolean).join(', '));
  });

  function draw(names, run, pointed = held) {
    last = [names, run];
    const { score, method } = self.settings;
    const stacked = self.width < 520;
    const sides = ['most', 'least'];
    const width = Math.max(260, self.width);
    const height = Math.max(stacked ? 300 : 150, Math.min(self.tall, stacked ? 560 : 620) - 30);
    const known = names.map((name) => [name, of(name)]);
    const random = of('random');
    const band = random && !random.refused && random.band;
    const all = known.flatMap(([, one]) => sides.flatMap((side) => one[side][score]));
    const low = score === 'logit' ? Math.min(0, ...all) : 0;
    const high = score === 'logit' ? Math.max(1, ...all) : 1;
    const parts = [];
    const size = self.zoom;
    const box = { left: 50 * size, top: 24 * size, right: 8 * size, bottom: 38 * size };
    const panel = stacked ? { width, height: height / 2 } : { width: width / 2, height };
    points = [];
    sides.forEach((side, place) => {
      const at = stacked ? [0, place * panel.height] : [place * panel.width, 0];
      const x = (share) => at[0] + box.left + share * (panel.width - box.left - box.right);
      const y = (value) =>
        at[1] + box.top + (1 - (value - low) / (high - low)) * (panel.height - box.top - box.bottom);
      parts.push(...frame(side, x, y, low, high, box, panel, at, score));
      if (band)
        parts.push(
          svg('polygon', { class: 'vv-chance', points: bandOf(band[side][score], random.shares, x, y) }),
        );
      for (const [name, one] of known) {
        const found = one[side][score].map((value, step) => ({
          name,
          side,
          step,
          value,
          share: Math.round(100 * one.shares[step]),
          x: x(one.shares[step]),
          y: y(value),
          jump: 2 * one.shares.length,
        }));
        const strong = name === pointed || name === method;
        const colour = strong ? 'var(--vv-accent)' : colourOf(name, names);
        const quiet = colour === 'currentColor' && !CONTROLS.includes(name);
        parts.push(
          svg('polyline', {
            points: found.map((p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`).join(' '),
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

function frame(side, x, y, low, high, _box, _panel, at, score) {
  const said = (value) => (score === 'logit' ? number(value) : `${Math.round(100 * value)} %`);
  const head =
    side === 'most' ? t('Most relevant first: lower is better') : t('Least relevant first: higher is better');
  return [
    svg('text', { class: 'vv-axis', x: x(0), y: at[1] + 14, 'text-anchor': 'start' }, head),
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
    svg(
      'text',
      { class: 'vv-axis', x: (x(0) + x(1)) / 2, y: y(low) + 33, 'text-anchor': 'middle' },
      t('patches taken away'),
    ),
  ];
}
