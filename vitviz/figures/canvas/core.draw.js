// Drawing: elements, canvases sharp on any screen, colour maps, scales, the tooltip.

/** The page's language: the English text is the key; {name} is filled in afterwards. */
function t(text, values) {
  const { texts = {}, recognise } = window.vitviz || {}, found = texts[text] || recognise?.(text) || text;
  return values ? found.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? values[name] : whole)) : found;
}

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'text') node.textContent = value;
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** An off-screen canvas. */
function sheet(width, height) {
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.round(width));
  canvas.height = Math.max(1, Math.round(height));
  return canvas;
}

/** Sizes a canvas for `width` x `height` CSS pixels and gives its cleared context, scaled to CSS pixels. */
function fit(canvas, width, height, ratio) {
  const w = Math.max(1, Math.round(width * ratio)), h = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  canvas.style.width = width + 'px';
  canvas.style.height = height + 'px';
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.globalAlpha = 1; // a canvas that keeps its size keeps what the last drawing set
  context.clearRect(0, 0, width, height);
  return context;
}

const tables = {}; // colour map -> 256 opaque pixels, as a little-endian 32-bit RGBA word

function decodeTables(encoded) {
  for (const [name, text] of Object.entries(encoded)) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    tables[name] = Uint32Array.from({ length: 256 }, (_, i) => (0xff000000 | (bytes[3 * i + 2] << 16) | (bytes[3 * i + 1] << 8) | bytes[3 * i]) >>> 0);
  }
  tables.grey = Uint32Array.from({ length: 256 }, (_, i) => (0xff000000 | (i * 0x010101)) >>> 0);
}

function table(name) {
  return tables[name] || tables.viridis;
}

/** Draws `rows` x `cols` numbers, one pixel each, into a small canvas (a new one, or the one given). */
function tinted(values, rows, cols, map, low, high, start = 0, canvas = null) {
  const target = canvas || sheet(cols, rows), colours = table(map);
  if (target.width !== cols) target.width = cols;
  if (target.height !== rows) target.height = rows;
  const context = target.getContext('2d'), image = context.createImageData(cols, rows);
  const words = new Uint32Array(image.data.buffer), factor = high > low ? 255 / (high - low) : 0;
  for (let i = 0; i < words.length; i++) {
    const level = (values[start + i] - low) * factor;
    words[i] = colours[level <= 0 ? 0 : level >= 255 ? 255 : (level + 0.5) | 0];
  }
  context.putImageData(image, 0, 0);
  return target;
}

/** Bicubic enlargement (a = -0.75, as in OpenCV), kept within the bounds of the numbers given. */
function enlarged(values, rows, cols, factor) {
  const weights = (x) => [((-0.75 * x + 1.5) * x - 0.75) * x, (1.25 * x - 2.25) * x * x + 1, ((-1.25 * x + 1.5) * x + 0.75) * x, (0.75 * x - 0.75) * x * x];
  const along = (source, lines, length, step, jump) => { // enlarges one axis; `step` between neighbours, `jump` between lines
    const out = new Float32Array(lines * length * factor);
    for (let o = 0; o < length * factor; o++) {
      const at = (o + 0.5) / factor - 0.5, base = Math.floor(at), w = weights(at - base);
      const from = [0, 1, 2, 3].map((k) => Math.min(length - 1, Math.max(0, base - 1 + k)) * step);
      for (let l = 0; l < lines; l++) {
        const start = l * jump, to = step === 1 ? l * length * factor + o : o * lines + l;
        out[to] = w[0] * source[start + from[0]] + w[1] * source[start + from[1]] + w[2] * source[start + from[2]] + w[3] * source[start + from[3]];
      }
    }
    return out;
  };
  const wide = along(values, rows, cols, 1, cols), full = along(wide, cols * factor, rows, cols * factor, 1);
  const [low, high] = bounds(values);
  for (let i = 0; i < full.length; i++) full[i] = full[i] < low ? low : full[i] > high ? high : full[i];
  return { values: full, rows: rows * factor, cols: cols * factor };
}

function bounds(values, start = 0, stop = values.length) {
  let low = Infinity, high = -Infinity;
  for (let i = start; i < stop; i++) {
    const v = values[i];
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return low <= high ? [low, high] : [0, 0];
}

function total(values, start = 0, stop = values.length) {
  let sum = 0;
  for (let i = start; i < stop; i++) sum += values[i];
  return sum;
}

/** A number as a person reads it: `digits` significant ones, a real minus sign. */
function number(value, digits = 3) {
  if (!Number.isFinite(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  const text = size >= 10 ** digits ? value.toFixed(0) : size < 1e-4 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
  return text.replace('e', ' · 10^').replace(/-/g, '−');
}

/** About `count` round numbers within low..high. */
function ticks(low, high, count = 5) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((m) => m * power >= rough * 0.999) * power;
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) out.push(i * step);
  return out;
}

/** A numbered colour scale. `update(map, low, high, label)`, `mark(value)` points at one value. */
function colourbar(map = 'viridis') {
  const strip = el('canvas', { class: 'vv-bar-strip', width: 256, height: 1 });
  const label = el('div', { class: 'vv-bar-label' }), marks = el('div', { class: 'vv-bar-ticks' }), caret = el('div', { class: 'vv-bar-caret', hidden: true });
  const node = el('div', { class: 'vv-bar' }, label, el('div', { class: 'vv-bar-body' }, strip, caret), marks);
  const ramp = Float32Array.from({ length: 256 }, (_, i) => i);
  let low = 0, high = 1, drawn = '';
  const update = (name, from, to, text) => {
    const state = [name, from, to, text].join('|');
    if (state === drawn) return;
    [drawn, low, high] = [state, from, to];
    label.textContent = text;
    tinted(ramp, 1, 256, name, 0, 255, 0, strip);
    const share = (value) => (to > from ? ((value - from) / (to - from)) * 100 : 0), said = (value) => number(Math.abs(value) < (to - from) * 1e-9 ? 0 : value);
    const room = (value) => 2.7 * said(value).length; // per cent of a narrow bar
    let end = room(from) + 2;
    const inner = ticks(from, to, 4).filter((value) => {
      const [left, right] = [share(value) - room(value) / 2, share(value) + room(value) / 2], fits = left > end && right < 98 - room(to);
      if (fits) end = right + 2;
      return fits;
    });
    marks.replaceChildren(...[from, ...inner, ...(to > from ? [to] : [])].map((value) => {
      const at = share(value);
      return el('span', { style: `left:${at}%`, class: at === 0 ? 'vv-first' : at === 100 ? 'vv-last' : null, text: said(value) });
    }));
  };
  const mark = (value) => {
    const gone = value === null || !Number.isFinite(value);
    if (caret.hidden !== gone) caret.hidden = gone;
    if (!gone) caret.style.left = Math.max(0, Math.min(100, high > low ? ((value - low) / (high - low)) * 100 : 50)) + '%';
  };
  update(map, 0, 1, '');
  return { node, update, mark };
}

/** One tooltip for the page. Lines are plain text: the first one strong. */
const tip = {
  node: null,
  show(event, ...lines) {
    if (!tip.node) {
      tip.node = el('div', { class: 'vv-tip', 'aria-hidden': 'true' });
      document.body.append(tip.node);
    }
    while (tip.node.childElementCount < lines.length) tip.node.append(el('div'));
    [...tip.node.children].forEach((line, i) => {
      const text = lines[i] || '';
      if (line.textContent !== text) line.textContent = text;
    });
    const left = event.clientX > window.innerWidth * 0.6, above = event.clientY > 110;
    tip.node.style.transform = `translate(${event.clientX + (left ? -14 : 14)}px,${event.clientY + (above ? -12 : 18)}px) translate(${left ? '-100%' : '0'},${above ? '-100%' : '0'})`;
    tip.node.classList.add('vv-on');
  },
  hide() {
    tip.node?.classList.remove('vv-on');
  },
};
