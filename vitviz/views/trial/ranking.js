// The ranking: areas under both curves, what lies between them, SaCo, and what a map leaves unexplained.

import { button, div, el, span, stack, svg } from '../../canvas/elements.js';
import { lighting, relit, whenLit } from '../../canvas/lit.js';
import { fixed } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';
import { drawMap, largest } from './maps.js';

/** A table with a row a method, best first; a click holds its curves. */
export function ranking(self, { title, pick, of, style }) {
  const head = el('tr', {});
  const body = el('tbody', {});
  const said = el('p', { class: 'vv-text' });
  const canvas = el('canvas');
  const name = el('span', {});
  const one = div('vv-tried-map', div('vv-plot', canvas), name);
  const table = el('table', { class: 'vv-ranking' }, el('thead', {}, head), body);
  const node = stack(
    el('div', { class: 'vv-wide-table', tabindex: 0, role: 'region', 'aria-label': t('Ranking') }, table),
    div('vv-row vv-ranked', one, said),
  );
  let known = [];
  whenLit(self, show);

  /** Shows the map of a method; without one of what is held, else of the best. */
  function show(method) {
    const shown = [method, self.settings.method, ...known].find((each) => known.includes(each));
    one.hidden = !shown;
    if (!shown) return;
    drawMap(self, canvas, of(shown), largest(known, of));
    name.textContent = title(shown);
  }

  function draw(names, { verdict }) {
    known = names;
    show('');
    const logit = self.settings.score === 'logit';
    const value = (one) => (logit ? fixed(one, 2) : fixed(100 * one, 1));
    const unit = logit ? '' : ' %';
    const band = ({ chance, reach }) => ({
      mean: value(chance[0]) + unit,
      most: value(chance[0] + reach) + unit,
    });
    const areas = [t('Most ↓'), t('Least ↑'), t('Gap ↑')].map((text) => text + unit);
    const columns = [t('Method'), ...areas, 'SaCo', t('Rest')];
    head.replaceChildren(...columns.map((text) => el('th', { scope: 'col', text })));
    const rows = verdict ? verdict.rows : names.map((method) => ({ method }));
    body.replaceChildren(
      ...rows.map(({ method, areas, gap, saco, beats, unexplained }) => {
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
    relit(body);
    said.textContent = verdict
      ? [
          t(
            'Slanted rows are not told from chance: a random map’s gap is {mean}, and in one of 20 trials ' +
              'the best of so many would come above {most}.',
            band(verdict),
          ),
          t(verdict.level),
          t('Rest: what the map leaves unexplained of the logit.'),
        ].join(' ')
      : t('The ranking comes when all methods are tried.');
  }

  return { node, draw, show };
}
