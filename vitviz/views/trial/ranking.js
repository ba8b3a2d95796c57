// The ranking: areas under both curves, what lies between them, SaCo, and what a map leaves unexplained.

import { el } from '../../canvas/elements.js';
import { fixed, number } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';
import { colourOf } from './curves.js';

/** A table with a row a method, best first; a click holds its curves. */
export function ranking(self, { title, pick }) {
  const head = el('tr', {});
  const body = el('tbody', {});
  const said = el('p', { class: 'vv-text' });
  const table = el('table', { class: 'vv-ranking' }, el('thead', {}, head), body);
  const node = el(
    'div',
    { class: 'vv-stack' },
    el('div', { class: 'vv-wide-table', tabindex: 0, role: 'region', 'aria-label': t('Ranking') }, table),
    said,
  );

  function draw(names, { verdict }) {
    const logit = self.settings.score === 'logit';
    const value = (one) => (logit ? fixed(one, 2) : fixed(100 * one, 1));
    const unit = logit ? '' : ' %';
    const band = ({ chance }) => ({ mean: value(chance[0]), deviation: value(2 * chance[1]) + unit });
    const columns = [
      t('Method'),
      t('Most first ↓') + unit,
      t('Least first ↑') + unit,
      t('Gap ↑') + unit,
      'SaCo',
      t('Unexplained'),
    ];
    head.replaceChildren(...columns.map((text) => el('th', { scope: 'col', text })));
    const rows = verdict ? verdict.rows : names.map((method) => ({ method }));
    body.replaceChildren(
      ...rows.map(({ method, areas, gap, saco, beats, unexplained }) => {
        const key = el('span', { class: 'vv-dot-key', style: `background:${colourOf(method, names)}` });
        const button = el(
          'button',
          {
            type: 'button',
            'aria-pressed': String(self.settings.method === method),
            onclick: () => pick(method),
          },
          key,
          el('span', { text: title(method) }),
        );
        const cells = areas
          ? [
              ...areas.map(value),
              value(gap),
              fixed(saco, 2),
              unexplained === null ? t('no sum') : fixed(unexplained, 3),
            ]
          : ['', '', '', '', ''];
        return el(
          'tr',
          { class: beats === false ? 'vv-chancy' : undefined, 'data-method': method },
          el('th', { scope: 'row' }, button),
          ...cells.map((text) => el('td', { text })),
        );
      }),
    );
    said.textContent = verdict
      ? [
          t('Slanted rows are not told from chance, whose gap is {mean} ± {deviation}.', band(verdict)),
          t('{sets} sets of patches were asked about.', { sets: number(verdict.sets, 6) }),
        ].join(' ')
      : t('The ranking comes when all methods are tried.');
  }

  return { node, draw };
}
