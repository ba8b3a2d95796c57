// How alike the maps are: rank correlations of every two methods, and of one method's maps of two classes.

import { el, stack } from '../../canvas/elements.js';
import { matrix } from '../../canvas/matrix.js';
import { t } from '../../canvas/words.js';

/** The matrix of methods, with the column of the other class once that has been asked about. */
export function agreement(self) {
  const drawn = matrix(self);
  const wait = el('p', { class: 'vv-text', text: t('The ranking comes when all methods are tried.') });

  function draw(_names, { verdict, alike }) {
    const figure = alike ?? verdict?.agreement;
    drawn.node.hidden = !figure;
    wait.hidden = Boolean(figure);
    const width = Math.max(260, self.below.clientWidth) - 4;
    if (figure) drawn.draw(figure, { width, height: Infinity, most: 30 * self.zoom });
  }

  return { node: stack(drawn.node, wait), draw };
}
