// A trial over a set: how far each method lies ahead of chance with two standard errors, and the ranking.

import { el, svg } from '../../canvas/elements.js';
import { fixed, number, ticks } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';

const ROWS = [14, 24]; // px, as low and as high as a row may be
const AROUND = 100; // px of the figure for the axis and the count of pictures

/** The plot and the table; `draw(told)` draws what the item "standing" says. */
export function standing(self, { title }) {
  const plot = svg('svg', { class: 'vv-chart vv-standing', role: 'img' });
  const head = el('tr', {});
  const body = el('tbody', {});
  const said = el('p', { class: 'vv-text' });
  const gone = el('p', { class: 'vv-text vv-refused' });
  const table = el('table', { class: 'vv-ranking' }, el('thead', {}, head), body);
  const wide = { class: 'vv-wide-table', tabindex: 0, role: 'region', 'aria-label': t('Ranking') };
  const logit = () => self.settings.score === 'logit';
  const value = (one) => (one === null ? '–' : logit() ? fixed(one, 2) : fixed(100 * one, 1));
  const both = (mean, error) => (error === null ? value(mean) : `${value(mean)} ± ${value(error)}`);

  function drawPlot({ rows, verdict }) {
    const size = self.zoom;
    const width = Math.max(260, self.width);
    const edge = { left: Math.min(170 * size, 0.45 * width), right: 14 * size, top: 6 * size };
    const reach = rows.map((row) => [row.ahead, 2 * (row.ahead_error ?? 0)]);
    const low = Math.min(0, ...reach.map(([mean, error]) => mean - error));
    const high = Math.max(0.01, ...reach.map(([mean, error]) => mean + error));
    const x = (ahead) => edge.left + ((ahead - low) / (high - low)) * (width - edge.left - edge.right);
    const room = (self.tall - AROUND * size) / rows.length;
    const row = Math.max(ROWS[0] * size, Math.min(ROWS[1] * size, room));
    const y = (place) => edge.top + (place + 0.5) * row;
    const foot = y(rows.length - 0.5);
    plot.setAttribute('width', width);
    plot.setAttribute('height', foot + 44 * size);
    plot.setAttribute('aria-label', t(verdict));
    const line = (kind, x1, x2, y1, y2) => svg('line', { class: kind, x1, x2, y1, y2 });
    plot.replaceChildren(
      ...ticks(low, high, width < 420 ? 3 : 5).flatMap((at) => [
        line('vv-grid', x(at), x(at), edge.top, foot),
        svg(
          'text',
          { x: x(at), y: foot + 16 * size, 'text-anchor': 'middle' },
          number(logit() ? at : 100 * at),
        ),
      ]),
      line('vv-level', x(0), x(0), edge.top, foot),
      ...rows.flatMap((one, place) => [
        svg(
          'text',
          { x: edge.left - 8, y: y(place) + 4 * size, 'text-anchor': 'end' },
          `${one.rank} · ${title(one.method)}`,
        ),
        line(
          'vv-reach',
          x(reach[place][0] - reach[place][1]),
          x(reach[place].reduce((a, b) => a + b)),
          y(place),
          y(place),
        ),
        svg('circle', {
          class: one.beats_chance ? 'vv-ahead' : 'vv-level-with',
          cx: x(one.ahead),
          cy: y(place),
          r: 4.5 * size,
          'data-method': one.method,
        }),
      ]),
      svg(
        'text',
        { class: 'vv-axis', x: width - edge.right, y: foot + 36 * size, 'text-anchor': 'end' },
        logit() ? t('gap less chance’s, logits') : t('gap less chance’s, %'),
      ),
    );
  }

  function drawTable({ rows, refused }) {
    const unit = logit() ? '' : ' %';
    const columns = [
      t('Rank'),
      t('Method'),
      t('Most first ↓') + unit,
      t('Least first ↑') + unit,
      t('Gap ↑') + unit,
      t('Two classes'),
    ];
    head.replaceChildren(...columns.map((text) => el('th', { scope: 'col', text })));
    body.replaceChildren(
      ...rows.map((row) =>
        el(
          'tr',
          { class: row.beats_chance ? undefined : 'vv-chancy', 'data-method': row.method },
          el('td', { text: String(row.rank) }),
          el('th', { scope: 'row', text: title(row.method) }),
          el('td', { text: both(row.most, row.most_error) }),
          el('td', { text: both(row.least, row.least_error) }),
          el('td', { text: value(row.gap) }),
          el('td', { text: row.alike === null ? '–' : fixed(row.alike, 2) }),
        ),
      ),
    );
    said.textContent = [
      t('± is the standard error. Who shares a rank cannot be told apart; slanted rows not from chance.'),
      t('Two classes: how alike a method’s maps of the two likeliest are; 1 means that it knows no class.'),
    ].join(' ');
    gone.textContent = refused.map((sentence) => t(sentence)).join(' ');
  }

  return {
    node: el('div', { class: 'vv-plot' }, plot),
    table: el('div', { class: 'vv-stack' }, el('div', wide, table), gone, said),
    draw(told) {
      drawPlot(told);
      drawTable(told);
    },
  };
}
