// Attention rollout over the upload, at the upload's resolution; the attention of each layer beside it.

import { colourbar, enlarged, tinted } from '../../frontend/colours.js';
import { button, div, el, fit, sheet, stack, thumb } from '../../frontend/elements.js';
import { patchName, placeName, t } from '../../frontend/i18n.js';
import { bounds, fixed, number, total } from '../../frontend/numbers.js';
import { framing } from '../../frontend/outliers.js';
import { cells, outline, plotted, rowByRow, tip } from '../../frontend/pointer.js';
import { drawMissing } from '../../frontend/removed_patches.js';
import { differs, labelled, reach, still } from '../../frontend/shared_scale.js';

/** The selected map: rollout, or one layer's mean attention. */
function chosen(self) {
  const { map, layers } = self.data;
  const size = self.grid.rows * self.grid.cols;
  const { alone } = self.settings;
  return alone ? layers.values.subarray((alone - 1) * size, alone * size) : map.values;
}

/** True if drawn as in the paper: map / max as brightness; not available for differences. */
const asPaper = (self) => self.settings.overlay === 'paper' && !differs(self);

const coloursOf = (self) => (differs(self) ? 'balance' : asPaper(self) ? 'grey' : self.settings.colormap);

function scale(self, values) {
  // shares of grids of different sizes have no common scale
  const name = `${JSON.stringify(self.settings)}/${values.length}`;
  if (differs(self)) {
    const most = still(self, name, 0, reach(values))[1] || 1;
    return [-most, most];
  }
  const [low, high] = still(self, name, ...bounds(values));
  return [
    self.settings.scale === 'data' && self.settings.overlay !== 'paper' && low < high ? low : 0,
    high || 1,
  ]; // the paper draws map / max
}

/** The crop's rectangle, with `s` pixels per pixel of the upload. */
function cropOf({ photo }, s) {
  const [x, y, right, bottom] = photo.box.map((edge) => edge * s);
  return { x, y, width: right - x, height: bottom - y };
}

/** Draws the map over an image on `context` with `s` pixels per pixel of the upload. */
function lay(self, context, s, width, height) {
  const values = chosen(self);
  const paper = asPaper(self);
  const { rows, cols } = self.grid;
  const [low, high] = scale(self, values);
  const smooth = self.settings.smooth !== 'off';
  const { x, y, width: w, height: h } = cropOf(self, s);
  const fine = Math.min(420, Math.max(w, h) * self.density); // samples along the longer side
  const source = smooth
    ? enlarged(values, rows, cols, Math.max(2, Math.ceil(fine / Math.max(rows, cols))))
    : { values, rows, cols };
  const heat = tinted(source.values, source.rows, source.cols, coloursOf(self), low, high);
  context.save();
  context.fillStyle = paper ? '#000' : self.colour('--vv-paper');
  context.globalAlpha = paper ? 0.85 : 0.62;
  context.beginPath();
  context.rect(0, 0, width, height);
  context.rect(x, y, w, h);
  context.fill('evenodd');
  context.globalAlpha = paper ? 1 : (self.settings.opacity ?? 0.6);
  context.globalCompositeOperation = paper ? 'multiply' : 'source-over';
  context.imageSmoothingEnabled = smooth;
  context.imageSmoothingQuality = 'high';
  context.drawImage(heat, x, y, w, h);
  context.restore();
}

function sentence(self) {
  const share = total(chosen(self));
  if (differs(self)) return t('Change summed over all patches: {share}.', { share: fixed(share, 3) });
  const names = self.grid.prefix.map((name) => t(name));
  if (!names.length) return t('All attention on patches: {share}.', { share: number(share, 3) });
  return t('Attention: {share} on patches, the rest on {tokens}.', {
    share: share.toFixed(2),
    tokens:
      names.length === 1
        ? t('the {name} token', { name: names[0] })
        : t('the prefix tokens ({names})', { names: names.join(', ') }),
  });
}

/** How faithful rollout is, with the numbers of docs/trial.md. */
const fares = (self) =>
  el(
    'p',
    { class: 'vv-text vv-fares' },
    el('span', {
      class: 'vv-measured',
      text: t(
        'With top patches removed first, vitviz-tiny keeps its prediction until {rollout} % of the ' +
          'patches are removed (rollout), {ledger} % (direct logit attribution) or {random} % (random ' +
          'order); mean of 500 images. Lower is more faithful. Rollout gives the same map for every ' +
          'class.',
        { rollout: 35, ledger: 20, random: 65 },
      ),
    }),
    ' ',
    button(
      t('See what raised the prediction: Attribution'),
      () => self.open('evidence', { method: 'ledger' }),
      {
        'data-export': 'no',
      },
    ),
  );

export default () => ({
  title: 'Attention rollout',
  side: true,
  edged: true, // the layers are in a narrow column beside the image
  caption: (self) => (self.settings.alone ? t('Layer {layer} alone', { layer: self.settings.alone }) : ''),
  beside: (self) => [fares(self)],
  idle: (self) => (differs(self) ? ['overlay', 'colormap', 'scale'] : []),

  build(self) {
    const { canvas, plot, spot: hover } = plotted();
    const bar = colourbar();
    const title = el('p', { class: 'vv-h' });
    const said = el('p', { class: 'vv-text' });
    const strip = el('div', { class: 'vv-thumbs', role: 'group', 'aria-label': t('Layers') });
    const asked = outline(plot, 'vv-pinned');
    const framed = framing(self, plot);
    self.figure.append(div('vv-stack vv-centred', title, plot, div('vv-row', bar.node, said), framed.node));
    const text = t('Each layer separately: mean over its heads, each map scaled separately');
    self.below.append(stack(el('p', { class: 'vv-text', text }), strip));
    const name = (cell) => `${patchName(cell)}, ${placeName(self.grid, cell)}`;
    const middle = () => Math.floor(self.grid.rows / 2) * self.grid.cols + Math.floor(self.grid.cols / 2);
    cells(self, canvas, {
      start: () => (/^\d+$/.test(self.settings.query) ? Number(self.settings.query) : middle()),
      place: () => self.ui.place,
      label: () => [title.textContent, t('Rollout map over the image.')],
      name: (cell) => `${name(cell)}: ${number(self.ui.values[cell])}`,
      hover(cell, event) {
        const value = self.ui.values[cell];
        const share = t('{times} × uniform', { times: number(value * self.ui.values.length, 2) });
        hover.over(self.ui.place, cell);
        bar.mark(value);
        tip.show(event, number(value), name(cell), differs(self) ? '' : share);
      },
      leave() {
        hover.hide();
        bar.mark(null);
      },
      pick: (cell) => self.set('query', self.settings.query === String(cell) ? 'auto' : String(cell)),
    });
    return { canvas, bar, title, said, strip, asked, framed };
  },

  pictures: () => ['upload'],
  items: () => ['map', 'layers'],

  draw(self) {
    for (const one of self.root.querySelectorAll('.vv-measured'))
      one.hidden = self.value.checkpoint !== 'vitviz-tiny'; // without its training steps
    const { ui, data, settings, grid } = self;
    const [w, h] = self.photo.upload;
    const width = Math.min(self.width, (w / h) * self.tall);
    const s = width / w;
    const height = h * s;
    const base = `${self.key}/${width}/${self.density}`;
    if (ui.base !== base) {
      // the image, scaled once for this size
      [ui.base, ui.scaled] = [base, sheet(width * self.density, height * self.density)];
      const context = ui.scaled.getContext('2d');
      context.imageSmoothingQuality = 'high';
      context.drawImage(data.upload, 0, 0, ui.scaled.width, ui.scaled.height);
      drawMissing(self, context, rowByRow(grid, cropOf(self, s * self.density)));
    }
    self.figure.firstElementChild.style.setProperty('--vv-drawn', `${width}px`);
    const context = fit(ui.canvas, width, height, self.density);
    context.drawImage(ui.scaled, 0, 0, width, height);
    lay(self, context, s, width, height);
    ui.values = chosen(self);
    ui.place = { rows: grid.rows, cols: grid.cols, ...cropOf(self, s) };
    const [low, high] = scale(self, ui.values);
    const picked = /^\d+$/.test(settings.query) ? Number(settings.query) : -1;
    const share = t('Share of attention, per patch');
    const label = asPaper(self) ? t('Brightness: share of attention, per patch') : labelled(self, share);
    ui.bar.update(coloursOf(self), low, high, label);
    ui.said.textContent = sentence(self);
    const from =
      settings.query === 'auto'
        ? t(self.summary.auto || 'what the classifier reads')
        : settings.query === 'mean'
          ? t('all tokens, on average')
          : picked >= 0
            ? `${patchName(picked)} (${placeName(grid, picked)})`
            : t('the {name} token', { name: t(settings.query) });
    ui.title.textContent = `${this.caption(self) || t('Rollout')} · ${from}`;
    ui.asked.over(ui.place, picked);
    ui.framed.draw({ width, height }, rowByRow(grid, ui.place));
    this.thumbs(self);
  },

  thumbs(self) {
    const { strip } = self.ui;
    const { rows, cols } = self.grid;
    const count = self.value.layers;
    if (strip.childElementCount !== count + 1) {
      strip.replaceChildren(
        ...Array.from({ length: count + 1 }, (_, i) => {
          const label = i ? t('Layer {layer}', { layer: i }) : t('Rollout');
          const turn = () => self.set('alone', self.settings.alone === i ? 0 : i);
          return thumb(sheet(1, 1), i ? String(i) : label, turn, { 'aria-label': label, title: label });
        }),
      );
    }
    const { map, layers } = self.data;
    const size = rows * cols;
    [...strip.children].forEach((button, i) => {
      const values = i ? layers.values : map.values;
      const start = i ? (i - 1) * size : 0;
      const high = reach(values, start, start + size) || 1;
      const low = differs(self) ? -high : 0;
      tinted(values, rows, cols, coloursOf(self), low, high, start, button.firstChild);
      button.setAttribute('aria-pressed', String(self.settings.alone === i));
    });
  },
});
