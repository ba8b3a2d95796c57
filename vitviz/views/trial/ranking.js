// The ranking: areas under both curves, the gap between them, SaCo, and the unexplained part of the logit.
// For a set: each method's lead over random maps, with two standard errors.

import { unpacked } from '../../frontend/data.js';
import { button, div, el, span, stack, svg } from '../../frontend/elements.js';
import { lighting, lit, relit, whenLit } from '../../frontend/highlight.js';
import { t } from '../../frontend/i18n.js';
import { fixed } from '../../frontend/numbers.js';
import { chartBeside } from '../../frontend/plotly_chart.js';
import { drawMap, largest } from './maps.js';

/** A table as wide as its contents: `fill(columns, rows)`. */
function tabled() {
  const [head, body] = [el('tr', {}), el('tbody', {})];
  const wide = { class: 'vv-wide-table', tabindex: 0, role: 'region', 'aria-label': t('Ranking') };
  const table = el('table', { class: 'vv-ranking' }, el('thead', {}, head), body);
  const fill = (columns, rows) => {
    head.replaceChildren(...columns.map((text) => el('th', { scope: 'col', text })));
    body.replaceChildren(...rows);
  };
  return { node: el('div', wide, table), fill };
}

/** A table with one row per method, best first; a click highlights the method's curves. */
export function ranking(self, { title, pick, of, style }) {
  const table = tabled();
  const said = el('p', { class: 'vv-text' });
  const canvas = el('canvas');
  const name = el('span', {});
  const one = div('vv-tried-map', div('vv-plot', canvas), name);
  const node = stack(table.node, div('vv-row vv-ranked', one, said));
  let known = [];
  whenLit(self, show);

  /** Shows the map of the given method, else of the selected one, else of the best. */
  function show(method) {
    const shown = [method, self.settings.method, ...known].find((each) => known.includes(each));
    one.hidden = !shown;
    if (!shown) return;
    drawMap(self, canvas, of(shown), largest(known, of));
    name.textContent = title(shown);
  }

  function draw(names, { verdict }) {
    known = names;
    show(lit());
    const logit = self.settings.score === 'logit';
    const value = (one) => (logit ? fixed(one, 2) : fixed(100 * one, 1));
    const unit = logit ? '' : ' %';
    const band = ({ chance, reach }) => ({
      mean: value(chance[0]) + unit,
      most: value(chance[0] + reach) + unit,
    });
    const areas = [t('Most ↓'), t('Least ↑'), t('Gap ↑')].map((text) => text + unit);
    const columns = [t('Method'), ...areas, 'SaCo', t('Rest')];
    const measured = new Map(verdict?.rows.map((row) => [row.method, row]));
    const rows = names.map((method) => measured.get(method) ?? { method }); // sorted when all are tested
    table.fill(
      columns,
      rows.map(({ method, areas, gap, saco, beats, unexplained }) => {
        const key = svg('svg', { class: 'vv-line-key', width: 18, height: 4 });
        const line = { x1: 0, x2: 18, y1: 2, y2: 2, 'stroke-width': 2.5 };
        key.append(svg('line', { ...line, ...style(method) }));
        const pressed = { 'aria-pressed': String(self.settings.method === method) };
        const held = button('', () => pick(method), pressed, key, span(title(method)));
        const cells = areas
          ? [...areas, gap]
              .map(value)
              .concat(fixed(saco, 2), unexplained === null ? '–' : fixed(unexplained, 2))
          : ['', '', '', '', ''];
        const kind = { class: beats === false ? 'vv-chancy' : undefined, ...lighting(method) };
        const named = el('th', { scope: 'row' }, held);
        return el('tr', kind, named, ...cells.map((text) => el('td', { text })));
      }),
    );
    relit(table.node);
    said.textContent = verdict
      ? [
          t(
            'Italic rows are not significantly better than random (mean random gap {mean}, threshold ' +
              '{most}, 5 % level, corrected for the number of methods).',
            band(verdict),
          ),
          t(verdict.level),
          t('Rest: the part of the logit that the map does not explain.'),
        ].join(' ')
      : '';
  }

  return { node, draw, show };
}

/** The plot and the table of a set; `draw(told)` draws the item "standing". */
export function standing(self, { title }) {
  const drawn = chartBeside(self);
  drawn.node.classList.add('vv-standing');
  const table = tabled();
  const said = el('p', { class: 'vv-text' });
  const gone = el('p', { class: 'vv-text vv-refused' });
  const logit = () => self.settings.score === 'logit';
  const value = (one) => (one === null ? '–' : logit() ? fixed(one, 2) : fixed(100 * one, 1));
  const both = (mean, error) => (error === null ? value(mean) : `${value(mean)} ± ${value(error)}`);

  function draw({ rows, refused }) {
    const needed = 24 * self.zoom * rows.length + 70 * self.zoom;
    drawn.draw(unpacked(self.data.chart), self.width, Math.min(needed, self.tall - 40 * self.zoom));
    const unit = logit() ? '' : ' %';
    const columns = [
      t('Rank'),
      t('Method'),
      t('Most first ↓') + unit,
      t('Least first ↑') + unit,
      t('Gap ↑') + unit,
      t('Two classes'),
    ];
    table.fill(
      columns,
      rows.map((row) =>
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
      t(
        '± is the standard error. Methods with equal rank are statistically tied; italic rows are not ' +
          'significantly better than random.',
      ),
      t(
        'Two classes: correlation of a method’s maps for the two most likely classes; at 1, the map is ' +
          'independent of the class.',
      ),
    ].join(' ');
    gone.textContent = refused.map((sentence) => t(sentence)).join(' ');
  }

  return { node: drawn.node, table: stack(table.node, gone, said), draw };
}
