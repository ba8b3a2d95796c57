// Attention rollout over the upload, at the upload's own resolution; each layer's own attention beside it.

import { colourbar } from '../../canvas/colourbar.js';
import { tinted } from '../../canvas/colours.js';
import { differs, labelled, reach } from '../../canvas/difference.js';
import { el, fit, sheet } from '../../canvas/elements.js';
import { drawMissing } from '../../canvas/missing.js';
import { patchName, placeName } from '../../canvas/names.js';
import { fixed, number, total } from '../../canvas/numbers.js';
import { framing, rowByRow } from '../../canvas/outliers.js';
import { cells, outline } from '../../canvas/pointer.js';
import { tip } from '../../canvas/tip.js';
import { t } from '../../canvas/words.js';
import { asPaper, chosen, coloursOf, lay, scale } from './lay.js';

function sentence(self) {
  const share = total(chosen(self));
  if (differs(self)) return t('The change of all patches together: {share}.', { share: fixed(share, 3) });
  const names = self.grid.prefix.map((name) => t(name));
  if (!names.length) return t('The patches hold all of it: {share}.', { share: number(share, 3) });
  return t('The patches hold {share} of it; the rest is on {tokens}.', {
    share: share.toFixed(2),
    tokens:
      names.length === 1
        ? t('the {name} token', { name: names[0] })
        : t('the prefix tokens ({names})', { names: names.join(', ') }),
  });
}

/** How well it foretells what the model needs, as docs/trial.md has it from the trial's table. */
const fares = (self) =>
  el(
    'p',
    { class: 'vv-text vv-fares' },
    t(
      'Where its brightest patches are left out first, vitviz-tiny keeps its answer for {rollout} % of ' +
        'the way on average over 500 pictures, with the map of Evidence for {ledger} %, at random for ' +
        '{random} %; and all classes get the same map.',
      { rollout: 35, ledger: 20, random: 65 },
    ),
    ' ',
    el('button', {
      type: 'button',
      class: 'vv-link',
      'data-export': 'no',
      text: t('See why the model decided: Evidence'),
      onclick: () => self.open('evidence', { method: 'ledger' }),
    }),
  );

export default () => ({
  title: 'Attention rollout',
  side: true,
  edged: true, // the layers in a narrow column beside the picture
  caption: (self) => (self.settings.alone ? t('Layer {layer} alone', { layer: self.settings.alone }) : ''),
  beside: (self) => [fares(self)],
  idle: (settings, self) =>
    differs(self)
      ? ['overlay', 'colormap', 'scale']
      : settings.overlay === 'paper'
        ? ['opacity', 'colormap', 'scale']
        : [],

  build(self) {
    const canvas = el('canvas');
    const plot = el('div', { class: 'vv-plot' }, canvas);
    const bar = colourbar();
    const title = el('p', { class: 'vv-h' });
    const said = el('p', { class: 'vv-text' });
    const strip = el('div', { class: 'vv-thumbs', role: 'group', 'aria-label': t('Layers') });
    const hover = outline(plot);
    const asked = outline(plot, 'vv-pinned');
    const framed = framing(self, plot);
    hover.node.dataset.export = 'no';
    self.figure.append(
      el(
        'div',
        { class: 'vv-stack vv-centred' },
        title,
        plot,
        el('div', { class: 'vv-row' }, bar.node, said),
        framed.node,
      ),
    );
    self.below.append(
      el(
        'div',
        { class: 'vv-stack' },
        el('p', {
          class: 'vv-text',
          text: t('Each layer alone: mean over its heads, every map scaled by itself'),
        }),
        strip,
      ),
    );
    const place = () => self.ui.place;
    cells(self, canvas, {
      start: () =>
        /^\d+$/.test(self.settings.query)
          ? Number(self.settings.query)
          : Math.floor(self.grid.rows / 2) * self.grid.cols + Math.floor(self.grid.cols / 2),
      place,
      label: () => t('Rollout map over the picture.'),
      name: (cell) => `${patchName(cell)}, ${placeName(self.grid, cell)}: ${number(self.ui.values[cell])}`,
      hover(cell, event) {
        const p = place();
        const w = p.width / p.cols;
        const h = p.height / p.rows;
        const value = self.ui.values[cell];
        hover.put(p.x + (cell % p.cols) * w, p.y + Math.floor(cell / p.cols) * h, w, h);
        bar.mark(value);
        tip.show(
          event,
          number(value),
          `${patchName(cell)}, ${placeName(self.grid, cell)}`,
          differs(self)
            ? ''
            : t('{times} × an even share', { times: number(value * self.ui.values.length, 2) }),
        );
      },
      leave() {
        hover.hide();
        bar.mark(null);
      },
      pick: (cell) => self.set('query', self.settings.query === String(cell) ? 'auto' : String(cell)),
    });
    return { canvas, bar, title, said, strip, asked, framed, place: null, values: [] };
  },

  pictures: () => ['upload'],
  items: () => ['map', 'layers'],

  draw(self) {
    const { ui, data, settings, grid } = self;
    const {
      upload: [w, h],
      box,
    } = self.photo;
    const width = Math.min(self.width, (w / h) * self.tall);
    const s = width / w;
    const height = h * s;
    const base = `${self.key}/${width}/${self.density}`;
    if (ui.base !== base) {
      // the picture scaled once for this size
      [ui.base, ui.scaled] = [base, sheet(width * self.density, height * self.density)];
      const context = ui.scaled.getContext('2d');
      context.imageSmoothingQuality = 'high';
      context.drawImage(data.upload, 0, 0, ui.scaled.width, ui.scaled.height);
      const [left, top, right, bottom] = box.map((edge) => edge * s * self.density);
      drawMissing(
        self,
        context,
        rowByRow(grid, { x: left, y: top, width: right - left, height: bottom - top }),
      );
    }
    self.figure.firstElementChild.style.setProperty('--vv-drawn', `${width}px`);
    const context = fit(ui.canvas, width, height, self.density);
    context.drawImage(ui.scaled, 0, 0, width, height);
    lay(self, context, s, width, height);
    ui.values = chosen(self);
    ui.place = {
      rows: grid.rows,
      cols: grid.cols,
      x: box[0] * s,
      y: box[1] * s,
      width: (box[2] - box[0]) * s,
      height: (box[3] - box[1]) * s,
    };
    const [low, high] = scale(self, ui.values);
    const picked = /^\d+$/.test(settings.query) ? Number(settings.query) : -1;
    ui.bar.update(
      coloursOf(self),
      low,
      high,
      asPaper(self)
        ? t('Brightness: share of attention, per patch')
        : labelled(self, t('Share of attention, per patch')),
    );
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
    if (picked >= 0) {
      const pw = ui.place.width / grid.cols;
      const ph = ui.place.height / grid.rows;
      ui.asked.put(
        ui.place.x + (picked % grid.cols) * pw,
        ui.place.y + Math.floor(picked / grid.cols) * ph,
        pw,
        ph,
      );
    } else {
      ui.asked.hide();
    }
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
          return el(
            'button',
            {
              type: 'button',
              class: 'vv-thumb',
              'aria-label': label,
              title: label,
              onclick: () => self.set('alone', self.settings.alone === i ? 0 : i),
            },
            sheet(1, 1),
            el('span', { text: i ? String(i) : t('Rollout') }),
          );
        }),
      );
    }
    const { map, layers } = self.data;
    const size = rows * cols;
    [...strip.children].forEach((button, i) => {
      const values = i ? layers.values : map.values;
      const start = i ? (i - 1) * size : 0;
      const high = reach(values, start, start + size);
      tinted(
        values,
        rows,
        cols,
        coloursOf(self),
        differs(self) ? -(high || 1) : 0,
        high || 1,
        start,
        button.firstChild,
      );
      button.setAttribute('aria-pressed', String(self.settings.alone === i));
    });
  },
});
