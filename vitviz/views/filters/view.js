// Filters of the patch embedding: principal components as in figure 7, or a grid of all raw filters; and the
// response of a chosen one in each patch of the image.

import { ramp } from '../../frontend/colours.js';
import { unpacked } from '../../frontend/data.js';
import { div, el, fit, pen, say, sheet, stack } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { map } from '../../frontend/map.js';
import { bounds, number, percent } from '../../frontend/numbers.js';
import { chartBeside } from '../../frontend/plotly_chart.js';
import { cells, outline, plotted, rowByRow } from '../../frontend/pointer.js';
import { reach, still } from '../../frontend/shared_scale.js';

/**
 * All filters, each scaled separately to [0, 1], in one image with `across` per row; returns their bounds
 * too.
 */
function atlas(values, count, height, width, across) {
  const canvas = sheet(across * width, Math.ceil(count / across) * height);
  const context = pen(canvas);
  const image = context.createImageData(canvas.width, canvas.height);
  const size = height * width * 3;
  const ends = [];
  for (let i = 0; i < count; i++) {
    const start = i * size;
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

/** The setting of the chosen filter or component. */
const setting = (self) => (self.settings.kind === 'raw' ? 'filter' : 'component');

/** The place of the chosen filter in the grid, from 0; -1 for none. */
function chosen(self) {
  const place = self.settings[setting(self)];
  return place <= self.summary.counts[self.settings.kind] ? place - 1 : -1;
}

/** True if a response is shown. */
const answering = (self) => chosen(self) >= 0 && !self.summary.unanswered;

export default () => ({
  title: 'Filters of the patch embedding',
  keeps: true,
  reset: (self) => (self.cur = Math.max(0, chosen(self))),

  build(self) {
    self.cur = 0;
    const { canvas, plot, spot: hover } = plotted();
    const held = outline(plot, 'vv-pinned');
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
    const response = map(self);
    const why = el('p', { class: 'vv-text', hidden: true });
    const parts = [name, div('vv-plot', big), bar, said, chart.node, response.node, why];
    const detail = div('vv-stack vv-detail', ...parts);
    self.figure.append(stack(note, div('vv-row vv-positions', plot, detail)));
    cells(self, canvas, {
      place: () => self.ui.place,
      label: () => t('Filters of the patch embedding.'),
      name: (cell) => (cell < self.ui.count ? this.words(self, cell).join('. ') : ''),
      start: () => Math.max(0, chosen(self)),
      hover: (cell) => {
        if (cell >= self.ui.count) return hover.hide();
        this.frame(self, hover, cell);
        if (chosen(self) < 0) this.show(self, cell);
      },
      leave: () => hover.hide(),
      pick: (cell) => cell < self.ui.count && self.set(setting(self), cell === chosen(self) ? 0 : cell + 1),
    });
    self.figure.addEventListener(
      'keydown',
      (event) => event.key === 'Escape' && chosen(self) >= 0 && self.set(setting(self), 0),
      { signal: self.life.signal },
    );
    return {
      note,
      canvas,
      big,
      name,
      said,
      low,
      high,
      chart,
      held,
      detail,
      response,
      why,
      count: 0,
      tile: [0, 0],
    };
  },

  // raw filters and components are fetched only when selected
  items: (self) => [
    ...(self.settings.kind === 'raw' ? ['raw', 'norms'] : ['components', 'variance', 'chart']),
    ...(answering(self) ? ['response'] : []),
  ],
  pictures: (self) => (answering(self) ? ['upload'] : []),

  draw(self) {
    const { ui, data } = self;
    const raw = Boolean(data.raw);
    const [count, ph, pw] = pictures(self).shape;
    const made = `${self.key}/${raw}`;
    const room = Math.min(self.wide ? self.width - self.detail - 28 : self.width, 1100);
    const gap = raw ? 2 : 8;
    const text = raw ? 0 : 20 * self.zoom;
    /** Width of a column if `n` are as large as fit. */
    const pitchOf = (n) => {
      const lowest = self.room ? ((self.tall / Math.ceil(count / n) - gap - text) * pw) / ph : Infinity;
      return Math.floor(Math.max(10, Math.min((room + gap) / n, lowest + gap)));
    };
    const cols = raw
      ? Math.max(12, Math.min(48, Math.ceil(Math.sqrt((count * room) / self.tall))))
      : self.room
        ? [4, 5, 6, 7, 8, 9, 10].reduce((best, n) => (pitchOf(n) > pitchOf(best) ? n : best))
        : self.width < 560
          ? 6
          : 7;
    const rows = Math.ceil(count / cols);
    const pitch = pitchOf(cols);
    const side = pitch - gap;
    const [tw, th] = [side, Math.round((side * ph) / pw)];
    if (ui.made !== made) {
      const whole = atlas(pictures(self).values, count, ph, pw, Math.ceil(Math.sqrt(count)));
      [ui.made, ui.atlas] = [made, whole];
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
    const place = chosen(self);
    if (place < 0) ui.held.hide();
    else this.frame(self, ui.held, place);
    ui.chart.node.hidden = raw || place >= 0;
    ui.response.node.hidden = !answering(self);
    say(ui.why, place >= 0 ? t(self.summary.unanswered) : '');
    this.show(self, place < 0 ? self.cur : place, true);
    if (answering(self)) this.respond(self);
  },

  /** Outlines a tile. */
  frame({ ui }, mark, cell) {
    const [x, y] = rowByRow(ui.place, ui.place)(cell);
    mark.put(x - 1, y - 1, ui.tile[0] + 2, ui.tile[1] + 2);
  },

  /** The response of the chosen filter over the image, as large as fits below the filter. */
  respond(self) {
    const { ui, data, settings } = self;
    const { values } = data.response;
    const [, most] = still(self, `response/${settings.kind}/${chosen(self)}`, 0, reach(values) || 1);
    const scale = { low: -most, high: most, colours: 'balance' };
    const label = t('Response: sum of weight × normalised pixel, without the bias');
    ui.response.bar.update(scale.colours, -most, most, label); // its height is measured
    const [top, bottom] = [ui.response.node, ui.detail].map((node) => node.getBoundingClientRect());
    const spare = bottom.bottom - top.top - ui.response.bar.node.offsetHeight - 14;
    const below = self.room ? 0.18 * self.room : 340; // below the filter
    const room = self.wide ? Math.max(120, Math.min(self.detail, spare)) : Math.min(self.width, below);
    ui.response.show({ values, ...scale, label, title: '', about: ui.name.textContent, room, held: -1 });
  },

  tile(self, context, i, x, y, width, height) {
    const { canvas, across } = self.ui.atlas;
    const [, ph, pw] = pictures(self).shape;
    context.drawImage(canvas, (i % across) * pw, Math.floor(i / across) * ph, pw, ph, x, y, width, height);
  },

  /** The name and the numbers of a filter or component. */
  words(self, i) {
    const { data } = self;
    const [count, height, width] = pictures(self).shape;
    if (!data.raw) {
      const share = rough(data.variance.values[i]);
      return [
        t('Component {number} of {count}', { number: i + 1, count }),
        t('{share} of the total filter variance.', { share }),
      ];
    }
    const norm = data.norms.values[i].toPrecision(3);
    const told = { norm, place: i + 1, height, width };
    return [
      t('Filter {number} of {count}', { number: i + 1, count }),
      t('Norm {norm}, rank {place} by norm. {height} × {width} pixels.', told),
    ];
  },

  /** One filter enlarged, with its numbers. */
  show(self, i, anew = false) {
    if (i === self.cur && !anew) return;
    self.cur = i;
    const { ui, data } = self;
    const [, ph, pw] = pictures(self).shape;
    const side = self.wide
      ? Math.min(220, self.detail, Math.max(90, self.tall - 470 * self.zoom))
      : Math.min(120, self.width * 0.3);
    const context = fit(ui.big, side, (side * ph) / pw, self.density);
    context.imageSmoothingEnabled = false;
    this.tile(self, context, i, 0, 0, side, (side * ph) / pw);
    const [low, high] = ui.atlas.ends[i];
    ui.low.textContent = number(low);
    ui.high.textContent = number(high);
    [ui.name.textContent, ui.said.textContent] = this.words(self, i);
    ui.big.setAttribute('aria-label', ui.name.textContent);
    if (ui.chart.node.hidden) return;
    const width = self.wide ? Math.min(400, self.detail) : Math.min(300, self.width * 0.7 - 24);
    const figure = unpacked(data.chart);
    figure.bars.colours = figure.bars.colours.map((one, at) => (at === i ? 'var(--vv-accent)' : `${one}80`));
    const [top, bottom] = [ui.chart.node, ui.detail].map((node) => node.getBoundingClientRect());
    const spare = self.wide && self.room ? bottom.bottom - top.top - 48 * self.zoom : 0; // below its title
    ui.chart.draw(figure, width, Math.max(130 * self.zoom, Math.min(260 * self.zoom, spare)));
  },
});
