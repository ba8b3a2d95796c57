// A trial over a set: how far each method lies ahead of chance with two standard errors, and the ranking.

import { chartBeside } from '../../canvas/chart.js';
import { unpacked } from '../../canvas/data.js';
import { el, stack } from '../../canvas/elements.js';
import { fixed } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';

/** The plot and the table; `draw(told)` draws what the item "standing" says. */
export function standing(self, { title }) {
  const drawn = chartBeside(self);
  drawn.node.classList.add('vv-standing');
  const head = el('tr', {});
  const body = el('tbody', {});
  const said = el('p', { class: 'vv-text' });
  const gone = el('p', { class: 'vv-text vv-refused' });
  const table = el('table', { class: 'vv-ranking' }, el('thead', {}, head), body);
  const wide = { class: 'vv-wide-table', tabindex: 0, role: 'region', 'aria-label': t('Ranking') };
  const logit = () => self.settings.score === 'logit';
  const value = (one) => (one === null ? '–' : logit() ? fixed(one, 2) : fixed(100 * one, 1));
  const both = (mean, error) => (error === null ? value(mean) : `${value(mean)} ± ${value(error)}`);

  function drawPlot({ rows }) {
    const needed = 24 * self.zoom * rows.length + 70 * self.zoom;
    drawn.draw(unpacked(self.data.chart), self.width, Math.min(needed, self.tall - 40 * self.zoom));
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
          { class: row.beats_chance ? undefined : 'vv-chancy', 'data-lit': row.method },
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
    node: drawn.node,
    table: stack(el('div', wide, table), gone, said),
    draw(told) {
      drawPlot(told);
      drawTable(told);
    },
  };
}
