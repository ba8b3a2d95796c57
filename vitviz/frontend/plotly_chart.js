// A chart as described by `vitviz/charts/chart.py`, drawn by Plotly: box zoom, reset by a double click, and a
// legend that hides or isolates series. Tooltips, keys and linked highlighting are those of all figures.

import { beside, chartFrame, DASHES, entry, INKS, spaceOf } from './chart.js';
import { unpacked } from './data.js';
import { button, div, el, svg } from './elements.js';
import { t } from './i18n.js';
import { ends } from './line_labels.js';
import { available, plain, plotly } from './plotly.js';
import { chart as drawnAsSvg } from './svg_chart.js';

const MUTED = '#8e949f'; // of lines that are neither highlighted nor among the best
const GRID = 'rgba(128, 128, 128, 0.24)'; // on light and on dark
const PAUSE = 300; // ms between two drawings while frames of a camera or video pass
const about = new WeakMap(); // trace -> its series or bars, and the indices of its points
const TOUCHED = matchMedia('(pointer: coarse)').matches; // a drag scrolls the page

/** Plotly's pattern of a dash. */
const dashed = (name) => DASHES[name]?.replace(/\d+/g, '$&px').replaceAll(' ', ',') ?? 'solid';

/**
 * Makes a chart; parameters and result are those of `chart` in `svg_chart.js`. A series that is `muted` is
 * grey until it is highlighted, and the marks with the key `chosen` are outlined. Without `zooms`, a drag
 * belongs to the view.
 */
export function chart(self, options = {}) {
  return available ? drawnByPlotly(self, options) : drawnAsSvg(self, options);
}

function drawnByPlotly(self, { pick = null, zooms = !TOUCHED }) {
  const graph = div('vv-graph');
  const over = svg('svg', { class: 'vv-graph-names', 'aria-hidden': 'true' }); // names of lines, and the ring
  const plot = el('div', { class: 'vv-chart', tabindex: 0 }, graph, over);
  const frame = chartFrame(self, plot, pick);
  const { legend, node } = frame;
  const hidden = new Set(); // names of series
  /** @type {any} */
  let now = null; // the chart and its size
  /** @type {{x: number[], y: number[]} | null} */
  let zoom = null; // ranges of x and y
  let kept = ''; // axes that the zoom belongs to
  let listed = ''; // what the legend shows
  /** @type {any} */
  let settings = null; // of Plotly, which the chart keeps
  let last = 0; // ms, time of the last drawing
  let waiting = false;
  const axes = () => [graph._fullLayout?.xaxis, graph._fullLayout?.yaxis];
  const ink = (colour) => {
    const own = INKS[colour] ?? colour;
    const name = own === 'currentColor' ? 'color' : /^var\((.*)\)$/.exec(own)?.[1];
    return name ? self.colour(name) : colour;
  };

  /** Sets sizes and texts at once, so that the view can be fitted, and draws after the last of such calls. */
  function draw(given) {
    const { entries, ...next } = frame.begin(given);
    const { figure, width, height } = next;
    for (const part of [plot, graph]) part.style.cssText = `width:${width}px;height:${height}px`;
    const axes = JSON.stringify([figure.title, figure.x_label, figure.y_label, figure.question]);
    if (axes !== kept) [kept, zoom] = [axes, null];
    now = next;
    const several = figure.series.filter(({ name }) => name).length > 1;
    const looks = entries.map(({ name, colour, line, dots, dash }) => [t(name), colour, line, dots, dash]);
    const named = JSON.stringify([several, looks]);
    if (named !== listed)
      legend.replaceChildren(...entries.map((one) => (one.x && several ? switched(one) : entry(one))));
    listed = named;
    soon();
  }

  /** A legend entry: a click hides or shows its series, a double click shows it alone. */
  function switched(one) {
    const others = now.figure.series.map(({ name }) => t(name)).filter((name) => name !== t(one.name));
    const toggle = () => (hidden.delete(t(one.name)) ? null : hidden.add(t(one.name)));
    const change = (run) => () => {
      run();
      for (const node of legend.querySelectorAll('button'))
        node.setAttribute('aria-pressed', String(!hidden.has(node.textContent)));
      soon();
    };
    const alone = () => {
      const all = others.every((name) => hidden.has(name));
      hidden.clear();
      if (!all) for (const name of others) hidden.add(name);
    };
    const pressed = { class: 'vv-legend', 'aria-pressed': String(!hidden.has(t(one.name))) };
    return button('', change(toggle), { ...pressed, ondblclick: change(alone) }, ...entry(one).childNodes);
  }

  function soon() {
    if (waiting) return;
    waiting = true;
    const rest = self.passes ? PAUSE - (performance.now() - last) : 0;
    const run = () => render().catch(self.fail);
    if (rest > 0) setTimeout(run, rest);
    else queueMicrotask(run);
  }

  async function render() {
    const library = await plotly();
    waiting = false;
    if (!plot.isConnected || plot.parentElement.hidden) return;
    const first = !graph._fullLayout;
    last = performance.now();
    const { data, layout } = described();
    settings ??= config(library); // with another object Plotly would build the whole chart anew
    await library.react(graph, data, layout, settings);
    if (first) {
      graph.on('plotly_relayout', zoomed);
      graph.on('plotly_doubleclick', reset);
    }
    placed(data);
  }

  const reset = () => {
    zoom = null;
    soon();
  };

  function zoomed(change) {
    if (!Object.keys(change).some((name) => /^[xy]axis\.range/.test(name))) return;
    zoom = { x: [...graph.layout.xaxis.range], y: [...graph.layout.yaxis.range] };
    soon();
  }

  const config = (library) => {
    const save = (format) => ({
      name: format,
      title: t('Save the chart ({format})', { format: format.toUpperCase() }),
      icon: library.Icons[format === 'svg' ? 'disk' : 'camera'],
      click: () =>
        library.downloadImage(saved(), { format, ...saved().size, filename: `vitviz-${self.name}` }),
    });
    const back = { name: 'back', title: t('Reset the zoom'), icon: library.Icons.home, click: reset };
    return {
      displaylogo: false,
      displayModeBar: zooms ? 'hover' : false,
      doubleClick: false, // `reset` knows the whole range
      modeBarButtons: [[save('svg'), save('png'), back]],
      showAxisDragHandles: false,
      showTips: false,
    };
  };

  /** The figure as a file: on the page's background, in all colours, with a legend. */
  function saved() {
    const { data, layout } = described(true);
    const { width, height } = now;
    const size = { width: width + 200, height: height + 40 };
    const top = { text: plain(t(now.figure.title)), font: { size: layout.font.size * 1.2 } };
    const margin = { ...layout.margin, t: layout.margin.t + 40, r: undefined };
    const paper = { paper_bgcolor: self.colour('--vv-paper'), showlegend: true, title: top };
    return { data, layout: { ...layout, ...paper, ...size, margin }, size };
  }

  /** Data and layout for Plotly; `full` for a file. */
  function described(full = false) {
    const { figure, width, height, upright } = now;
    const size = self.zoom;
    const ranges = zoom ?? figure;
    const space = spaceOf(self, figure, width, height, ranges);
    const { left, right, top, foot, up, label } = space;
    const inner = right - left;
    const colour = self.colour('color');
    const gap = { ticks: 'outside', ticklen: 5 * size, tickcolor: 'transparent' }; // between label and plot
    const axis = (range, ticks, text) => ({
      range,
      autorange: false,
      tickmode: 'array',
      tickvals: ticks.map(([at]) => at),
      ticktext: ticks.map(([, name]) => plain(name)),
      tickangle: 0,
      zeroline: false,
      ...gap,
      title: { text: plain(text), standoff: 8 * size, font: { size: 13.5 * size } },
    });
    const layout = {
      width,
      height,
      margin: { l: left, r: width - right, t: top, b: foot, pad: 0 },
      paper_bgcolor: 'transparent',
      plot_bgcolor: 'transparent',
      font: { family: self.colour('font-family'), size: 12.5 * size, color: colour },
      showlegend: false,
      hovermode: false,
      dragmode: zooms ? 'zoom' : false,
      barmode: 'overlay',
      modebar: { orientation: 'h', bgcolor: self.colour('--vv-paper'), color: colour, activecolor: colour },
      xaxis: { ...axis(ranges.x, space.along, ''), showgrid: false },
      yaxis: {
        ...axis(ranges.y, up, upright ? t(figure.y_label) : ''),
        gridcolor: GRID,
      },
      // Plotly's own label is centred on the axis; this one may use the chart's whole width
      annotations: [
        {
          text: label.map(plain).join('<br>'),
          font: { size: 13.5 * size * space.fits },
          xref: 'paper',
          yref: 'paper',
          x: (space.middle - left) / inner,
          y: 0,
          xanchor: 'center',
          yanchor: 'top',
          yshift: -25 * size,
          showarrow: false,
        },
      ],
      shapes: [
        ...up.filter(([at]) => ranges.y.includes(at)).map(([at]) => edge(at)),
        ...figure.levels.map((one) => level(one, figure.bars ? 'above' : 'below')),
      ],
    };
    return { data: traces(figure, full), layout };
  }

  const level = ({ value, upright = false, colour = '', dash = 'dashed' }, layer) => ({
    type: 'line',
    ...(upright ? { yref: 'paper', y0: 0, y1: 1 } : { xref: 'paper', x0: 0, x1: 1 }),
    ...(upright ? { x0: value, x1: value } : { y0: value, y1: value }),
    line: { color: ink(colour), width: dash === 'solid' ? 1 : 1.6, dash: dashed(dash) },
    layer,
  });

  /** A grid line at an end of the axis, where Plotly draws none. */
  const edge = (at) => ({ ...level({ value: at }, 'below'), line: { color: GRID, width: 1 } });

  /** Muted lines first, below the others. `about` holds what a trace shows: Plotly deletes empty objects. */
  function traces({ bars, series }, full) {
    const order = [...series].sort((a, b) => Number(Boolean(b.muted)) - Number(Boolean(a.muted)));
    const found = order
      .filter((one) => full || !hidden.has(t(one.name)))
      .flatMap((one) => drawnOf(one, full));
    if (!bars) return found;
    const height = bars.x.map((_, i) => bars.high[i] - bars.low[i]);
    const at = { x: bars.x, y: height, base: bars.low, width: bars.width };
    const marker = { color: bars.colours.map(ink), line: { width: 0 } };
    const trace = { type: 'bar', ...at, marker, showlegend: false };
    about.set(trace, { one: bars });
    return [trace, ...found];
  }

  function drawnOf(one, full) {
    const known = one.x.map((_, i) => i).filter((i) => one.y[i] !== null);
    const of = (values) => known.map((i) => values[i]);
    const color = one.muted && !full ? MUTED : ink(one.colour);
    const mode = [one.line && 'lines', one.dots && 'markers'].filter(Boolean).join('+') || 'none';
    const found = [];
    if (one.band && one.line) {
      const [low, high] = one.band.map(of);
      const [x, y] = [
        [...of(one.x), ...of(one.x).reverse()],
        [...low, ...high.reverse()],
      ];
      const area = { fill: 'toself', fillcolor: color, opacity: 0.18, mode: 'lines', line: { width: 0 } };
      found.push({ type: 'scatter', x, y, ...area, showlegend: false });
    }
    const error_y = one.band &&
      !one.line && {
        type: 'data',
        symmetric: false,
        arrayminus: known.map((i) => one.y[i] - one.band[0][i]),
        array: known.map((i) => one.band[1][i] - one.y[i]),
        width: 0,
        thickness: 1.4,
        color,
      };
    const trace = {
      type: 'scatter',
      x: of(one.x),
      y: of(one.y),
      mode,
      name: plain(t(one.name)),
      showlegend: Boolean(one.name),
      line: { color, width: 4.6 * one.thick, dash: dashed(one.dash) },
      marker: { color, size: one.line ? 6.4 : 9, opacity: 0.78, line: { width: 0 } },
      ...(error_y ? { error_y } : {}),
    };
    about.set(trace, { one, known });
    return [...found, trace];
  }

  /** Marks what has been drawn for pointer, keys and highlighting, and names the lines at their ends. */
  function placed(data) {
    const { figure, width, height } = now;
    const [across, upward] = axes();
    const x = (at) => across._offset + across.l2p(at);
    const y = (at) => upward._offset + upward.l2p(at);
    const within = (at, axis) => Math.min(...axis.range) <= at && at <= Math.max(...axis.range);
    const lines = figure.series.filter(({ key }) => key);
    frame.restart(lines);
    const drawn = new Map();
    for (const part of graph.querySelectorAll('[data-lit]')) {
      delete part.dataset.lit; // Plotly reuses elements
      part.classList.remove('vv-lit', 'vv-chosen');
    }
    for (const part of graph.querySelectorAll('.trace')) drawn.set(part.__data__[0].trace.index, part);
    const found = data.map((trace, index) => ({ ...about.get(trace), part: drawn.get(index) }));
    const order = [figure.bars, ...figure.series].filter(Boolean);
    found.sort((a, b) => order.indexOf(a.one) - order.indexOf(b.one));
    for (const { one, known, part } of found) {
      if (!one || !part) continue;
      if (one.key) {
        part.dataset.lit = one.key;
        part.style.setProperty('--vv-own', ink(one.colour));
      }
      const marks = new Map();
      for (const point of part.querySelectorAll('.point')) marks.set(point.__data__.i, point);
      const bar = one === figure.bars;
      for (const [place, i] of (known ?? one.x.map((_, i) => i)).entries()) {
        const top = bar ? Math.max(one.low[i], one.high[i]) : one.y[i];
        if (!(one.dots || one.key || bar) || !within(one.x[i], across)) continue;
        if (!bar && !within(top, upward)) continue;
        const key = frame.point(figure, one, i, x(one.x[i]), y(top));
        const point = bar ? marks.get(place)?.querySelector('path') : marks.get(place);
        if (!point || !key) continue;
        point.dataset.lit = key;
        point.classList.toggle('vv-chosen', key === figure.chosen);
      }
    }
    const parts = [];
    const right = across._offset + across._length;
    if (figure.keyed && width - right > 20 * self.zoom) {
      const top = upward._offset;
      const place = { x, y, right, top, low: top + upward._length, size: self.zoom, ink, pick };
      const ended = lines.filter((one) => within(one.y.at(-1), upward) && within(one.x.at(-1), across));
      if (ended.length) parts.push(...ends(ended, place));
    }
    for (const [name, value] of Object.entries({ width, height })) over.setAttribute(name, value);
    over.replaceChildren(...parts, frame.ring);
    plot.toggleAttribute('data-zoomed', Boolean(zoom));
    frame.end();
  }

  /** The pointer's position on an axis. */
  const place = (which, side, start) => (event) => {
    const axis = axes()[which];
    return axis ? axis.p2l(event[side] - plot.getBoundingClientRect()[start] - axis._offset) : NaN;
  };
  return { node, draw, plot, at: place(0, 'clientX', 'left'), up: place(1, 'clientY', 'top') };
}

/** As `chartBeside` of `svg_chart.js`, drawn by Plotly. */
export const chartBeside = (self, options = {}) => beside(chart, self, options);

export default (slug) => ({
  title: slug,
  items: () => ['chart'],

  build(self) {
    const drawn = chart(self);
    self.figure.append(drawn.node);
    return { drawn };
  },

  draw(self) {
    this.title = self.value.title;
    self.ui.drawn.draw(unpacked(self.data.chart));
  },
});
