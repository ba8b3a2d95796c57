// The selected patch: its pixels, its three channels of numbers, its vector, and the norms of its embedding.

import { tinted } from '../../frontend/colours.js';
import { div, fit, span, track } from '../../frontend/elements.js';
import { patchName, placeName, t } from '../../frontend/i18n.js';
import { normalised } from '../../frontend/normalisation.js';
import { still } from '../../frontend/shared_scale.js';

/** The patches that are no tokens of the pass. */
function dropped(self) {
  const { patches = [], as } = self.value.missing ?? {};
  return as === 'dropped' ? patches : [];
}

/** A patch's name and its position in the sequence. */
export function described(self, patch) {
  const { grid } = self;
  const prefix = grid.prefix.length;
  const first = `${patchName(patch)}: ${placeName(grid, patch)}`;
  const gone = dropped(self);
  if (gone.includes(patch)) return [first, t('removed: not part of the model’s input')];
  const tokens = grid.rows * grid.cols + prefix - gone.length;
  const token = patch + prefix + 1 - gone.filter((other) => other < patch).length;
  if (!prefix) return [first, t('token {token} of {tokens}', { token, tokens })];
  const values = { token, tokens, count: prefix, names: grid.prefix.map((n) => t(n)).join(', ') };
  const behind =
    prefix === 1
      ? t('token {token} of {tokens}, after the {names} token', values)
      : t('token {token} of {tokens}, after {count} prefix tokens', values);
  return [first, behind];
}

export function inspect(self) {
  const { ui, grid, data, summary } = self;
  const [ph, pw] = grid.patch;
  const count = grid.rows * grid.cols;
  if (self.picked === null || self.picked >= count)
    self.picked = Math.floor(grid.rows / 2) * grid.cols + Math.floor(grid.cols / 2);
  const patch = self.picked;
  const values = normalised(data.bytes, patch, grid, summary);
  const [first, ...rest] = described(self, patch);
  const top = Math.floor(patch / grid.cols) * ph;
  const left = (patch % grid.cols) * pw;
  for (const one of [...ui.planes.map((plane) => plane.closest('figure')), ui.bar.node, ui.rest])
    one.hidden = Boolean(summary.bands);
  const low = Math.min(...summary.mean.map((m, c) => -m / summary.std[c]));
  const high = Math.max(...summary.mean.map((m, c) => (1 - m) / summary.std[c]));
  ui.name.textContent = first;
  if (summary.bands) rest.push(t('channels shown (from 0): {bands}', { bands: summary.bands }));
  ui.where.textContent = rest.join(' · ');
  ui.chosen.put(...ui.layout.at(patch));
  const widest = self.wide
    ? Math.min((self.detail - 12) / 2, Math.max(56, (self.tall - 345 * self.zoom) / 2))
    : (Math.min(self.width, 480) - 36) / 4;
  const side = Math.floor(widest);
  const height = (side * ph) / pw;
  const context = fit(ui.big, side, height, self.density);
  context.imageSmoothingEnabled = false;
  context.drawImage(data.input, left, top, pw, ph, 0, 0, side, height);
  ui.planes.forEach((plane, channel) => {
    const numbers = Float32Array.from({ length: ph * pw }, (_, i) => values[3 * i + channel]);
    const on = fit(plane, side, height, self.density);
    on.imageSmoothingEnabled = false;
    on.drawImage(tinted(numbers, ph, pw, 'cividis', low, high), 0, 0, side, height);
  });
  ui.bar.update('cividis', low, high, t('Model input: (pixel − mean) / standard deviation'));
  drawVector(self, values, low, high);
  const shown = data.norms && !dropped(self).includes(patch);
  ui.normBars.hidden = ui.norms.hidden = !shown;
  if (shown) showNorms(self, patch, count);
}

/** Draws the patch as a vector: a strip of its numbers. */
function drawVector(self, values, low, high) {
  const [ph, pw] = self.grid.patch;
  const room = self.width;
  let lines = ph; // whole pixel rows per line, as many as fit
  while (lines > 1 && (values.length / lines) * 2 * 3.5 <= room && lines % 2 === 0) lines /= 2;
  const fits = values.length / lines;
  const cell = Math.max(1, Math.min(10, room / fits));
  const rows = Math.ceil(values.length / fits);
  const tall = Math.max(cell, Math.min(14, 56 / rows));
  const context = fit(self.ui.strip_, cell * fits, tall * rows, self.density);
  context.imageSmoothingEnabled = false;
  for (let r = 0; r < rows; r++) {
    const part = values.subarray(r * fits, Math.min(values.length, (r + 1) * fits));
    const image = tinted(part, 1, part.length, 'cividis', low, high);
    context.drawImage(image, 0, r * tall, part.length * cell, Math.max(1, tall - (tall > 4 ? 1 : 0)));
  }
  self.ui.strip = { across: fits, cell, tall, values, per: pw };
  self.ui.strip_.setAttribute('aria-label', t('The patch as a vector'));
  self.ui.stripName.textContent = t(
    'Flattened: {height} · {width} · 3 = {count} numbers, pixel by pixel, red, green, blue',
    { height: ph, width: pw, count: values.length },
  );
}

/**
 * The norm of a patch's embedding before and after the position embedding is added (NaN if there is none),
 * and the largest of all. `norms` has all patches before, then all after.
 */
export function normsOf({ values }, patch, count) {
  const most = values.reduce((a, b) => Math.max(b, a), 0) || 1;
  return { before: values[patch], after: values[count + patch], most };
}

function showNorms(self, patch, count) {
  const { before, after, most: own } = normsOf(self.data.norms, patch, count);
  const [, most] = still(self, 'norms', 0, own);
  const row = (label, value) =>
    div('vv-normrow', span(label), track(value / most), span(value.toPrecision(value < 100 ? 3 : 4)));
  self.ui.normBars.replaceChildren(
    row(t('Embedding norm'), before),
    ...(Number.isFinite(after) ? [row(t('… with position embedding'), after)] : []),
  );
  const [ph, pw] = self.grid.patch;
  const told = { count: ph * pw * self.summary.mean.length, width: self.summary.width };
  self.ui.norms.textContent = Number.isFinite(after)
    ? t(
        'The embedding maps these {count} numbers to {width}. A full bar is the largest norm in ' +
          'this image.',
        told,
      )
    : t(
        'The embedding maps these {count} numbers to {width}. This model adds no absolute position ' +
          'embedding.',
        told,
      );
}
