// Filters of the patch embedding: principal components as in the paper's figure 7, or every raw filter as a wall.

import { el, fit, sheet } from '../../canvas/elements.js';
import { number, ticks } from '../../canvas/numbers.js';
import { cells, outline } from '../../canvas/pointer.js';
import { t } from '../../canvas/words.js';

/** Every filter, scaled alone to [0, 1], side by side in one picture of `across` filters a row; with its bounds. */
function atlas(values, count, height, width, across, order) {
  const canvas = sheet(across * width, Math.ceil(count / across) * height), context = canvas.getContext('2d');
  const image = context.createImageData(canvas.width, canvas.height), size = height * width * 3, ends = [];
  for (let i = 0; i < count; i++) {
    const start = order[i] * size;
    let low = Infinity, high = -Infinity;
    for (let k = start; k < start + size; k++) {
      if (values[k] < low) low = values[k];
      if (values[k] > high) high = values[k];
    }
    ends.push([low, high]);
    const factor = high > low ? 255 / (high - low) : 0, left = (i % across) * width, top = Math.floor(i / across) * height;
    for (let k = start, y = 0; y < height; y++) {
      let to = ((top + y) * canvas.width + left) * 4;
      for (let x = 0; x < width; x++, k += 3, to += 4) {
        image.data[to] = (values[k] - low) * factor;
        image.data[to + 1] = (values[k + 1] - low) * factor;
        image.data[to + 2] = (values[k + 2] - low) * factor;
        image.data[to + 3] = 255;
      }
    }
  }
  context.putImageData(image, 0, 0);
  return { canvas, across, ends };
}

/** The filters in view: the raw ones or the components. */
const pictures = (self) => self.data.raw || self.data.components;

const percent = (share) => (share >= 0.0995 ? (share * 100).toFixed(0) : share >= 0.00995 ? (share * 100).toFixed(1) : (share * 100).toFixed(2)) + ' %';

export default () => ({
  title: 'Filters of the patch embedding',
  keeps: true,
  reset: (self) => { self.cur = 0; },

  build(self) {
    self.cur = 0;
    const canvas = el('canvas'), plot = el('div', { class: 'vv-plot' }, canvas), hover = outline(plot);
    const big = el('canvas', { role: 'img' }), name = el('p', { class: 'vv-h' }), said = el('p', { class: 'vv-text' });
    const low = el('span'), high = el('span'), ramp = el('canvas', { width: 256, height: 1, class: 'vv-bar-strip' });
    const chart = el('canvas', { role: 'img' });
    const grey = el('div', { class: 'vv-bar' }, el('div', { class: 'vv-bar-label', text: t('Weight, each filter scaled alone') }), ramp, el('div', { class: 'vv-ends' }, low, high));
    const note = el('p', { class: 'vv-text', hidden: true });
    self.figure.append(el('div', { class: 'vv-stack' }, note, el('div', { class: 'vv-row vv-positions' }, plot, el('div', { class: 'vv-stack vv-detail' }, name, el('div', { class: 'vv-plot' }, big), grey, said, chart))));
    const context = ramp.getContext('2d'), fade = context.createLinearGradient(0, 0, 256, 0);
    fade.addColorStop(0, '#000');
    fade.addColorStop(1, '#fff');
    context.fillStyle = fade;
    context.fillRect(0, 0, 256, 1);
    cells(self, canvas, {
      place: () => self.ui.place,
      label: () => t('Filters of the patch embedding.'),
      name: (cell) => (cell < self.ui.count ? self.ui.name.textContent + '. ' + self.ui.said.textContent : ''),
      hover: (cell, event) => {
        if (cell >= self.ui.count) return hover.hide();
        const { x, y, width, height, rows, cols } = self.ui.place, w = width / cols, h = height / rows;
        hover.put(x + (cell % cols) * w - 1, y + Math.floor(cell / cols) * h - 1, self.ui.tile[0] + 2, self.ui.tile[1] + 2);
        this.show(self, cell);
      },
      leave: () => hover.hide(),
    });
    return { note, canvas, big, name, said, low, high, chart, place: null, count: 0, tile: [0, 0], made: '' };
  },

  items: (self) => (self.settings.kind === 'raw' ? ['raw', 'norms'] : ['components', 'variance']), // the other kind when it is asked for

  draw(self) {
    const { ui, data } = self, raw = Boolean(data.raw);
    const [count, ph, pw] = pictures(self).shape, made = `${self.key}/${raw}`;
    const room = Math.min(self.wide ? self.width - self.detail - 28 : self.width, 1100), gap = raw ? 2 : 8, text = raw ? 0 : 20 * self.zoom;
    const cols = raw ? Math.max(12, Math.min(48, Math.ceil(Math.sqrt((count * room) / self.tall)))) : self.width < 560 && !self.room ? 6 : 7;
    const rows = Math.ceil(count / cols), lowest = self.room ? ((self.tall / rows - gap - text) * pw) / ph : Infinity; // as tall as the cell
    const pitch = Math.floor(Math.max(10, Math.min((room + gap) / cols, lowest + gap))), side = pitch - gap;
    const [tw, th] = [side, Math.round((side * ph) / pw)];
    if (ui.made !== made) {
      const order = Int32Array.from({ length: count }, (_, i) => i);
      if (raw) order.sort((a, b) => data.norms.values[b] - data.norms.values[a]);
      [ui.made, ui.order, ui.atlas] = [made, order, atlas(pictures(self).values, count, ph, pw, Math.ceil(Math.sqrt(count)), order)];
      self.cur = Math.min(self.cur, count - 1);
    }
    [ui.count, ui.tile] = [count, [tw, th]];
    ui.place = { rows, cols, x: 0, y: 0, width: cols * pitch, height: rows * (th + gap + text) };
    const context = fit(ui.canvas, cols * pitch - gap, rows * (th + gap + text) - gap + (raw ? 0 : 4), self.density);
    context.imageSmoothingEnabled = tw * self.density < pw;
    context.imageSmoothingQuality = 'high';
    context.fillStyle = self.colour('color');
    context.font = `${12 * self.zoom}px ${self.colour('font-family')}`;
    context.textAlign = 'center';
    context.textBaseline = 'top';
    for (let i = 0; i < count; i++) {
      const x = (i % cols) * pitch, y = Math.floor(i / cols) * (th + gap + text);
      this.tile(self, context, i, x, y, tw, th);
      if (!raw) context.fillText(percent(data.variance.values[i]), x + tw / 2, y + th + 4, pitch);
    }
    ui.canvas.setAttribute('aria-label', t('Filters of the patch embedding.'));
    ui.note.textContent = t(self.summary.note || '');
    ui.note.hidden = !self.summary.note;
    ui.chart.hidden = raw;
    if (!raw) this.chart(self);
    this.show(self, self.cur, true);
  },

  tile(self, context, i, x, y, width, height) {
    const { canvas, across } = self.ui.atlas, [, ph, pw] = pictures(self).shape;
    context.drawImage(canvas, (i % across) * pw, Math.floor(i / across) * ph, pw, ph, x, y, width, height);
  },

  /** One filter enlarged, with its numbers. */
  show(self, i, anew = false) {
    if (i === self.cur && !anew) return;
    self.cur = i;
    const { ui, data } = self, [count, ph, pw] = pictures(self).shape, side = self.wide ? Math.min(220, self.detail, Math.max(90, self.tall - 300 * self.zoom)) : Math.min(120, self.width * 0.3);
    const context = fit(ui.big, side, (side * ph) / pw, self.density), raw = Boolean(data.raw);
    context.imageSmoothingEnabled = false;
    this.tile(self, context, i, 0, 0, side, (side * ph) / pw);
    const [low, high] = ui.atlas.ends[i];
    ui.low.textContent = number(low);
    ui.high.textContent = number(high);
    ui.name.textContent = raw ? t('Filter {number} of {count}', { number: ui.order[i] + 1, count }) : t('Component {number} of {count}', { number: i + 1, count });
    ui.big.setAttribute('aria-label', ui.name.textContent);
    ui.said.textContent = raw
      ? t('Norm {norm}, place {place} in order of norm. {height} × {width} pixels, red, green and blue.', { norm: data.norms.values[ui.order[i]].toPrecision(3), place: i + 1, height: ph, width: pw })
      : t('{share} of the variance of all filters.', { share: percent(data.variance.values[i]) });
    if (!raw) this.chart(self);
  },

  /** Share of variance, a bar for each component. */
  chart(self) {
    const shares = self.data.variance.values, s = self.zoom, width = Math.min(self.wide ? 400 : 300, self.wide ? self.detail : self.width * 0.7 - 24), height = 130 * s, left = 38 * s, right = 8, bottom = 34 * s, top = 8;
    const context = fit(self.ui.chart, width, height, self.density), most = Math.max(...shares) || 1, w = (width - left - right) / shares.length, h = height - bottom - top;
    context.font = `${12 * s}px ${self.colour('font-family')}`;
    const ink = self.colour('color'), accent = self.colour('--vv-accent');
    context.fillStyle = context.strokeStyle = ink;
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const value of ticks(0, most * 100, 3)) {
      const y = top + h * (1 - value / 100 / most);
      context.globalAlpha = 0.15;
      context.fillRect(left, y, width - left - right, 1);
      context.globalAlpha = 0.8;
      context.fillText(number(value) + ' %', left - 5, y);
    }
    shares.forEach((share, i) => {
      context.globalAlpha = i === self.cur ? 1 : 0.45;
      context.fillStyle = i === self.cur ? accent : ink;
      context.fillRect(left + i * w + 1, top + h * (1 - share / most), Math.max(1, w - 2), (h * share) / most);
    });
    context.globalAlpha = 0.8;
    context.fillStyle = ink;
    context.textAlign = 'center';
    context.textBaseline = 'top';
    for (const i of [1, 7, 14, 21, 28].filter((i) => i <= shares.length)) context.fillText(String(i), left + (i - 0.5) * w, top + h + 4);
    context.fillText(t('component: share of variance'), left + (width - left - right) / 2, height - 14 * s);
    let sum = 0;
    for (const share of shares) sum += share;
    self.ui.chart.setAttribute('aria-label', t('Share of variance of each component; all shown together: {share}', { share: percent(sum) }));
  },
});
