// Tokens of the sequence: their number and names, and per-head numbers.

/** True if a layer is sent whole, so hovering needs no request. */
export const small = (self) => self.summary.whole;
export const tokensOf = (self) => self.grid.rows * self.grid.cols + self.grid.prefix.length;
export const first = (self) => self.grid.prefix.length;
/** A head's attention distance in pixels; both counted from 0. */
export const distanceOf = (self, layer, head) => self.data.distances.values[layer * self.value.heads + head];

/** True if the decomposition of a score is shown. */
export const deeper = (self) => self.settings.beside === 'score';

/** Puts an outline around a token's patch; a prefix token has none. */
export const put = (self, mark, token) =>
  mark.over({ rows: self.grid.rows, cols: self.grid.cols, ...self.ui.size }, token - first(self));

/** The entropy of a part of an array in nats; 0 ln 0 counts as 0. */
export function entropy(values, start, count) {
  let sum = 0;
  for (let i = start; i < start + count; i++) if (values[i] > 0) sum -= values[i] * Math.log(values[i]);
  return sum;
}
