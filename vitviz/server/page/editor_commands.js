// Edits of an image as text, one command a word, which Python paints (vitviz/traces/image_edits.py). Lengths
// are in pixels of the image.

const LONGEST = 120; // points of one path
const LARGEST = 4096; // pixels per side of a scaled region

/** @typedef {number[]} Point x and y */
/**
 * A region of the image. `outline` is empty for a rectangle; `pasted` while the region lies on another image.
 * @typedef {{rect: number[], outline: Point[], pasted: boolean}} Region
 */

/** @param {string} edits */
const commands = (edits) => edits.split(' ').filter(Boolean);

/**
 * Index of the last command of some tools; -1 for none.
 * @param {string[]} each @param {string[]} tools
 */
const last = (each, ...tools) =>
  each.findLastIndex((one) => tools.some((tool) => one.match(/^[a-z]+/)?.[0] === tool));

/** Index of a whole-image edit; -1 for none. Edits before the last paste do not count. */
function adjusted(/** @type {string[]} */ each, /** @type {string} */ name) {
  const at = last(each, name, 'onto');
  return each[at]?.startsWith(name) ? at : -1;
}

/** The value of a whole-image edit; '0' for none. */
export function adjustment(/** @type {string} */ edits, /** @type {string} */ name) {
  const each = commands(edits);
  return each[adjusted(each, name)]?.split('_')[1] ?? '0';
}

/**
 * The edits with a new value for a whole-image edit, in its old position or at the end.
 * @param {string} edits @param {string} name @param {number} value
 */
export function adjust(edits, name, value) {
  const each = commands(edits);
  const at = adjusted(each, name);
  each.splice(at < 0 ? each.length : at, at < 0 ? 0 : 1, ...(value ? [`${name}_${value}`] : []));
  return each.join(' ');
}

/** The image that the edits end on: the command of the last paste, undefined for the chosen image. */
export function ground(/** @type {string} */ edits) {
  const each = commands(edits);
  return each[last(each, 'onto')]?.split('_')[0];
}

/** Seed of the next noise. */
export const seed = (/** @type {string} */ edits) => commands(edits).length;

/** At most `LONGEST` points of a path, evenly spaced, with the last. @param {Point[]} points */
function thinned(points) {
  const every = Math.ceil(points.length / LONGEST);
  return points.filter((_, i) => i % every === 0 || i === points.length - 1);
}

/** Encodes a path as its first point and relative steps. @param {Point[]} points */
const steps = (points) =>
  points.flatMap(([x, y], i) => (i ? [x - points[i - 1][0], y - points[i - 1][1]] : [x, y]));

/**
 * The edits with a stroke; `kind` is the tool with its ink.
 * @param {string} edits @param {string} kind @param {number} width @param {Point[]} points
 */
export const stroke = (edits, kind, width, points) =>
  `${edits} ${kind}_${[width, ...steps(thinned(points))].join('.')}`.trim();

/**
 * A rectangle from two corners, clipped to an image; null if nothing is left.
 * @param {Point} from @param {Point} to @param {number[]} size @returns {Region | null}
 */
export function rectangle(from, to, size) {
  const low = size.map((side, i) => Math.min(side, Math.max(0, Math.min(from[i], to[i]))));
  const high = size.map((side, i) => Math.min(side, Math.max(0, Math.max(from[i], to[i]))));
  const sides = high.map((one, i) => one - low[i]);
  return sides.every((side) => side > 0) ? { rect: [...low, ...sides], outline: [], pasted: false } : null;
}

/**
 * The region within a path, which closes itself; null for fewer than three points.
 * @param {Point[]} points @param {number[]} size @returns {Region | null}
 */
export function enclosed(points, size) {
  const outline = thinned(points).map((at) => at.map((one, i) => Math.min(size[i] - 1, Math.max(0, one))));
  const low = [0, 1].map((i) => Math.min(...outline.map((at) => at[i])));
  const high = [0, 1].map((i) => Math.max(...outline.map((at) => at[i])));
  const rect = [...low, ...high.map((one, i) => one - low[i] + 1)];
  return outline.length > 2 ? { rect, outline, pasted: false } : null;
}

/** True if a point lies in a region's rectangle. */
export const within = (/** @type {Point} */ [x, y], /** @type {Region | null} */ region) => {
  if (!region) return false;
  const [left, top, width, height] = region.rect;
  return x >= left && y >= top && x < left + width && y < top + height;
};

/**
 * Shift and factors with which a region keeps its relative size and position on an image of size `to`.
 * @param {Region} region @param {number[]} from @param {number[]} to
 */
export function fitted({ rect }, from, to) {
  const shares = to.map((side, i) => side / from[i]);
  const shift = shares.map((share, i) => Math.round((rect[i] + rect[i + 2] / 2) * (share - 1)));
  const by = Math.min(...shares, LARGEST / rect[2], LARGEST / rect[3]);
  return { shift, by: [by, by] };
}

/**
 * Shifts a region and scales its sides about its centre; `kind` is "move", "copy" or a paste ("onto.name").
 * Returns the edits and the region that they lead to; null if nothing changes.
 * @param {string} edits @param {Region} region @param {string} kind @param {number[]} shift
 * @param {number[]} [by]
 */
export function transform(edits, region, kind, shift, by = [1, 1]) {
  const pastes = kind.startsWith('onto');
  const again = region.pasted && kind === 'move';
  if (!pastes && !shift.some(Boolean) && by.every((one) => one === 1)) return null;
  const { rect, outline } = region;
  const sides = rect.slice(2);
  const became = sides.map((side, i) =>
    Math.abs(by[i]) === 1 ? side : Math.min(LARGEST, Math.max(1, Math.round(side * by[i]))),
  );
  const moved = shift.map((one, i) => one + Math.round((sides[i] - became[i]) / 2));
  const goal = became.map((side, i) => Math.sign(by[i]) * side);
  const each = commands(edits);
  if (again) {
    // pasted again; leaves no hole
    const at = last(each, 'onto');
    const [before, numbers] = each[at].split('_');
    const put = numbers.split('.').map(Number);
    moved.forEach((one, i) => (put[4 + i] += one));
    goal.forEach((one, i) => (put[6 + i] = Math.sign(put[6 + i]) * one));
    each[at] = `${before}_${put.join('.')}`;
  } else {
    const plain = !pastes && !outline.length && goal.every((side, i) => side === sides[i]);
    each.push(`${kind}_${[...rect, ...moved, ...(plain ? [] : goal), ...steps(outline)].join('.')}`);
  }
  const put = (/** @type {number} */ one, /** @type {number} */ i) => {
    const inside = Math.round(((one - rect[i]) * became[i]) / sides[i]);
    return rect[i] + moved[i] + (by[i] < 0 ? became[i] - 1 - inside : inside);
  };
  const corner = moved.map((one, i) => rect[i] + one);
  const next = { rect: [...corner, ...became], outline: outline.map((at) => at.map(put)) };
  return { edits: each.join(' '), region: { ...next, pasted: pastes || again } };
}
