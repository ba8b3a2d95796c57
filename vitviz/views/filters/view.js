// Filters of the patch embedding: principal components as in figure 7, or a grid of all raw filters.

import { ramp } from '../../frontend/colours.js';
import { unpacked } from '../../frontend/data.js';
import { div, el, fit, say, sheet, stack } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { bounds, number, percent } from '../../frontend/numbers.js';
import { chartBeside } from '../../frontend/plotly_chart.js';
import { cells, plotted, rowByRow } from '../../frontend/pointer.js';

/**
 * All filters, each scaled separately to [0, 1], in one image with `across` per row; returns their bounds
 * too.
 */
function atlas(values, count, height, width, across, order) {
  const canvas = sheet(across * width, Math.ceil(count / across) * height);
  const context = canvas.getContext('2d');
  const image = context.createImageData(canvas.width, canvas.height);
  const size = height * width * 3;
  const ends = [];
  for (let i = 0; i < count; i++) {
    const start = order[i] * size;
    const [low, high] = bounds(values, start, start + size);
    ends.push([low, high]);
    const factor = high > low ? 255 / (high - low) : 0;
    const left = (i % across) * width;
    const top = Math.floor(i / across) * height;
    for (let k = start, y = 0; y < height; y++) {
      let to = ((top + y) * canvas.width + left) * 4;
      for (let x = 0; x < width; x++, k += 3, to += 4) {
        for (let c = 0; c < 3; c++) image.data[to + c] = (values[k + c] - low) * factor;
        image.data[to + 3] = 255;
      }
    }
  }
  context.putImageData(image, 0, 0);
  return { canvas, across, ends };
}

/** A fraction as a percentage with about two digits. */
const rough = (share) => percent(share, share >= 0.0995 ? 0 : share >= 0.00995 ? 1 : 2);

/** The displayed filters: raw or components. */
const pictures = (self) => self.data.raw || self.data.components;

export default () => ({
  title: 'Filters of the patch embedding',
  keeps: true,
  reset: (self) => (self.cur = 0),

  build(self) {
    self.cur = 0;
    const { canvas, plot, spot: hover } = plotted();
    const big = el('canvas', { role: 'img' });
    const name = el('p', { class: 'vv-h' });
    const said = el('p', { class: 'vv-text' });
    const low = el('span');
    const high = el('span');
    const grey = ramp('grey', 'vv-bar-strip');
    const chart = chartBeside(self);
    const label = el('div', { class: 'vv-bar-label', text: t('Weight, each filter scaled separately') });
    const bar = div('vv-bar', label, grey, div('vv-ends', low, high));
    const note = el('p', { class: 'vv-text', hidden: true });
    const detail = div('vv-stack vv-detail', name, div('vv-plot', big), bar, said, chart.node);
    self.figure.append(stack(note, div('vv-row vv-positions', plot, detail)));
    cells(self, canvas, {
      place: () => self.ui.place,
      label: () => t('Filters of the patch embedding.'),
      name: (cell) =>
        cell < self.ui.count ? `${self.ui.name.textContent}. ${self.ui.said.textContent}` : '',
      hover: (cell) => {
        if (cell >= self.ui.count) return hover.hide();
        const [x, y] = rowByRow(self.ui.place, self.ui.place)(cell);
        hover.put(x - 1, y - 1, self.ui.tile[0] + 2, self.ui.tile[1] + 2);
        this.show(self, cell);
      },
      leave: () => hover.hide(),
    });
    return { note, canvas, big, name, said, low, high, chart, count: 0, tile: [0, 0] };
  },

  // raw filters and components are fetched only when selected
  items: (self) => (self.settings.kind === 'raw' ? ['raw', 'norms'] : ['components', 'variance', 'chart']),

  draw(self) {
    const { ui, data } = self;
    const raw = Boolean(data.raw);
    const [count, ph, pw] = pictures(self).shape;
    const made = `${self.key}/${raw}`;
    const room = Math.min(self.wide ? self.width - self.detail - 28 : self.width, 1100);
    const gap = raw ? 2 : 8;
    const text = raw ? 0 : 20 * self.zoom;
    const cols = raw
      ? Math.max(12, Math.min(48, Math.ceil(Math.sqrt((count * room) / self.tall))))
      : self.width < 560 && !self.room
        ? 6
        : 7;
    const rows = Math.ceil(count / cols);
    const lowest = self.room ? ((self.tall / rows - gap - text) * pw) / ph : Infinity; // to fit the height
    const pitch = Math.floor(Math.max(10, Math.min((room + gap) / cols, lowest + gap)));
    const side = pitch - gap;
    const [tw, th] = [side, Math.round((side * ph) / pw)];
    if (ui.made !== made) {
      const order = Int32Array.from({ length: count }, (_, i) => i);
      if (raw) order.sort((a, b) => data.norms.values[b] - data.norms.values[a]);
      const whole = atlas(pictures(self).values, count, ph, pw, Math.ceil(Math.sqrt(count)), order);
      [ui.made, ui.order, ui.atlas] = [made, order, whole];
      self.cur = Math.min(self.cur, count - 1);
    }
    [ui.count, ui.tile] = [count, [tw, th]];
    ui.place = { rows, cols, x: 0, y: 0, width: cols * pitch, height: rows * (th + gap + text) };
    const height = rows * (th + gap + text) - gap + (raw ? 0 : 4);
    const context = fit(ui.canvas, cols * pitch - gap, height, self.density);
    context.imageSmoothingEnabled = tw * self.density < pw;
    context.imageSmoothingQuality = 'high';
    context.fillStyle = self.colour('color');
    context.font = `${12 * self.zoom}px ${self.colour('font-family')}`;
    context.textAlign = 'center';
    context.textBaseline = 'top';
    for (let i = 0; i < count; i++) {
      const x = (i % cols) * pitch;
      const y = Math.floor(i / cols) * (th + gap + text);
      this.tile(self, context, i, x, y, tw, th);
      if (!raw) context.fillText(rough(data.variance.values[i]), x + tw / 2, y + th + 4, pitch);
    }
    say(ui.note, t(self.summary.note || ''));
    ui.chart.node.hidden = raw;
    this.show(self, self.cur, true);
  },

  tile(self, context, i, x, y, width, height) {
    const { canvas, across } = self.ui.atlas;
    const [, ph, pw] = pictures(self).shape;
    context.drawImage(canvas, (i % across) * pw, Math.floor(i / across) * ph, pw, ph, x, y, width, height);
  },

  /** One filter enlarged, with its numbers. */
  show(self, i, anew = false) {
    if (i === self.cur && !anew) return;
    self.cur = i;
    const { ui, data } = self;
    const [count, ph, pw] = pictures(self).shape;
    const side = self.wide
      ? Math.min(220, self.detail, Math.max(90, self.tall - 390 * self.zoom))
      : Math.min(120, self.width * 0.3);
    const context = fit(ui.big, side, (side * ph) / pw, self.density);
    const raw = Boolean(data.raw);
    context.imageSmoothingEnabled = false;
    this.tile(self, context, i, 0, 0, side, (side * ph) / pw);
    const [low, high] = ui.atlas.ends[i];
    ui.low.textContent = number(low);
    ui.high.textContent = number(high);
    ui.name.textContent = raw
      ? t('Filter {number} of {count}', { number: ui.order[i] + 1, count })
      : t('Component {number} of {count}', { number: i + 1, count });
    ui.big.setAttribute('aria-label', ui.name.textContent);
    ui.said.textContent = raw
      ? t('Norm {norm}, rank {place} by norm. {height} × {width} pixels.', {
          norm: data.norms.values[ui.order[i]].toPrecision(3),
          place: i + 1,
          height: ph,
          width: pw,
        })
      : t('{share} of the total filter variance.', { share: rough(data.variance.values[i]) });
    if (raw) return;
    const width = self.wide ? Math.min(400, self.detail) : Math.min(300, self.width * 0.7 - 24);
    const figure = unpacked(data.chart);
    figure.bars.colours = figure.bars.colours.map((one, at) => (at === i ? 'var(--vv-accent)' : `${one}80`));
    ui.chart.draw(figure, width, 130 * self.zoom);
  },
});
