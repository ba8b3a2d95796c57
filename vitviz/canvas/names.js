// What patches, tokens and a visitor's pictures are called.

import { t } from './words.js';

export const patchName = (patch) => t('Patch {number}', { number: patch + 1 });

/** A prefix token as a student reads it. */
export function tokenName(name) {
  const numbered = /^register (\d+)$/.exec(name);
  const said = numbered ? t('register {number}', { number: numbered[1] }) : t(name);
  return said.charAt(0).toUpperCase() + said.slice(1);
}

export function placeName(grid, patch) {
  return t('row {row}, column {col}', {
    row: Math.floor(patch / grid.cols) + 1,
    col: (patch % grid.cols) + 1,
  });
}

/** Over which pictures of the visitor's own something is. */
export function ofASet(count) {
  return count === 1 ? t('Over a set of one picture.') : t('Over the set of {count} pictures.', { count });
}
