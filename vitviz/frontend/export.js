// Exports the visible figure as a PNG at twice its size: canvases, text, borders, with title and settings.

import { el, pen, sheet } from './elements.js';

function opaque(colour) {
  return colour && colour !== 'transparent' && !/^rgba\(.*,\s*0\)$|\/\s*0\)$/.test(colour);
}

function paintText(context, node, style, origin) {
  const size = document.createRange();
  context.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  context.fillStyle = style.color;
  context.textBaseline = 'middle';
  context.textAlign = 'left';
  for (const match of node.data.matchAll(/\S+/g)) {
    // word by word, at each word's wrapped position
    size.setStart(node, match.index);
    size.setEnd(node, match.index + match[0].length);
    const box = size.getBoundingClientRect();
    if (!box.width) continue;
    const word = style.textTransform === 'uppercase' ? match[0].toUpperCase() : match[0];
    if (style.writingMode.startsWith('vertical')) {
      context.save();
      context.translate(box.left - origin.left + box.width / 2, box.bottom - origin.top);
      context.rotate(-Math.PI / 2);
      context.fillText(word, 0, 0);
      context.restore();
    } else {
      context.fillText(word, box.left - origin.left, box.top - origin.top + box.height / 2, box.width + 1);
    }
  }
}

function paint(context, node, origin, charts) {
  if (node.nodeType === Node.TEXT_NODE) {
    if (node.data.trim()) paintText(context, node, getComputedStyle(node.parentElement), origin);
    return;
  }
  if (node.nodeType !== Node.ELEMENT_NODE || node.hidden || node.dataset.export === 'no') return;
  const style = getComputedStyle(node);
  const box = node.getBoundingClientRect();
  if (style.display === 'none' || style.visibility === 'hidden' || Number(style.opacity) === 0) return;
  const x = box.left - origin.left;
  const y = box.top - origin.top;
  context.save();
  context.globalAlpha *= Number(style.opacity);
  const radius = Math.min(parseFloat(style.borderTopLeftRadius) || 0, box.height / 2);
  const rounded = (edge) => {
    context.beginPath();
    context.roundRect(x + edge / 2, y + edge / 2, box.width - edge, box.height - edge, radius);
  };
  if (opaque(style.backgroundColor)) {
    context.fillStyle = style.backgroundColor;
    rounded(0);
    context.fill();
  }
  const edge = parseFloat(style.borderTopWidth) || 0;
  if (
    edge &&
    parseFloat(style.borderLeftWidth) &&
    style.borderTopStyle !== 'none' &&
    opaque(style.borderTopColor)
  ) {
    if (node.classList.contains('vv-outline')) {
      // a dark ring, visible on any image
      context.strokeStyle = 'rgb(0 0 0 / .75)';
      context.lineWidth = 1.5;
      context.strokeRect(x - 0.75, y - 0.75, box.width + 1.5, box.height + 1.5);
    }
    context.strokeStyle = style.borderTopColor;
    context.lineWidth = edge;
    rounded(edge);
    context.stroke();
  }
  if (charts.has(node)) context.drawImage(charts.get(node), x, y, box.width, box.height);
  else if (node.matches('input:not([type=range], [type=checkbox], [type=radio]), select')) {
    const text = node.selectedOptions?.[0]?.textContent ?? (node.value || node.placeholder);
    const shift = parseFloat(style.paddingLeft) + edge;
    context.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    context.fillStyle = style.color;
    context.textBaseline = 'middle';
    context.fillText(text, x + shift, y + box.height / 2, box.width - 2 * shift);
  } else if (node.tagName === 'CANVAS') {
    if (node.width && node.height && box.width) {
      context.imageSmoothingEnabled = style.imageRendering !== 'pixelated';
      context.drawImage(node, x, y, box.width, box.height);
    }
  } else {
    for (const child of node.childNodes) paint(context, child, origin, charts);
  }
  context.restore();
}

function lines(context, text, width) {
  const out = [''];
  for (const word of text.split(' ')) {
    const longer = out[out.length - 1] ? `${out[out.length - 1]} ${word}` : word;
    if (context.measureText(longer).width <= width) out[out.length - 1] = longer;
    else out.push(word);
  }
  return out;
}

// what rules of the page set on parts of an SVG element
const STYLES = (
  'fill stroke stroke-width stroke-dasharray opacity visibility display ' +
  'font-family font-size font-weight text-anchor dominant-baseline'
).split(' ');

/** An SVG element's text with its computed styles, so that it can be drawn without the page's rules. */
function styled(node) {
  const copy = node.cloneNode(true);
  const [all, copies] = [node, copy].map((one) => [one, ...one.querySelectorAll('*')]);
  all.forEach((one, i) => {
    const style = getComputedStyle(one);
    for (const name of STYLES) copies[i].style.setProperty(name, style.getPropertyValue(name));
  });
  const { width, height } = node.getBoundingClientRect();
  copy.setAttribute('width', width);
  copy.setAttribute('height', height);
  return `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
}

/** The images of all charts and marks in these parts, by their elements. */
async function drawings(parts) {
  const found = new Map();
  for (const node of parts.flatMap((part) => [...part.querySelectorAll('.vv-graph, svg')])) {
    if (!node.firstChild || !node.clientWidth || node.parentElement.closest('.vv-graph')) continue;
    const size = { width: node.clientWidth, height: node.clientHeight };
    const plotly = node.classList.contains('vv-graph');
    const image = new Image();
    image.src = plotly ? await window.Plotly.toImage(node, { format: 'svg', ...size }) : styled(node);
    await image.decode();
    found.set(node, image);
  }
  return found;
}

/**
 * A view's figure as a PNG blob, redrawn at twice the screen's size; `said` are its settings, one per line.
 */
export async function portrait(self, title, said) {
  const parts = [self.figure.firstElementChild, ...self.below.children].filter(
    (part) => part?.offsetWidth && part.dataset.export !== 'no',
  );
  const style = getComputedStyle(self.root);
  const font = style.fontFamily;
  const pad = 24;
  const ratio = 2;
  const head = pad + 34;
  const gap = 20;
  self.ratio = ratio;
  self.draw();
  const boxes = parts.map((part) => part.getBoundingClientRect());
  const width = Math.max(320, ...boxes.map((box) => box.width));
  const height = boxes.reduce((sum, box) => sum + box.height + gap, 0);
  const probe = pen(sheet(1, 1));
  probe.font = `12px ${font}`;
  const beside = width - boxes[0].width > 200; // space for the settings to the right of the first part
  const listed = beside
    ? said.flatMap((one) => lines(probe, one, width - boxes[0].width - 36))
    : lines(probe, said.join(' · '), width);
  const canvas = sheet(
    (width + 2 * pad) * ratio,
    (head + height + (beside ? 0 : listed.length * 17) + pad) * ratio,
  );
  const context = pen(canvas);
  context.scale(ratio, ratio);
  context.fillStyle = style.getPropertyValue('--vv-paper').trim() || '#fff';
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = style.color;
  context.font = `600 18px ${font}`;
  context.fillText(title, pad, pad + 14, width);
  const charts = await drawings(parts);
  let top = head;
  parts.forEach((part, i) => {
    paint(context, part, { left: boxes[i].left - pad, top: boxes[i].top - top }, charts);
    top += boxes[i].height + gap;
  });
  self.ratio = 0;
  self.draw();
  context.font = `12px ${font}`;
  context.fillStyle = style.color;
  context.textBaseline = 'alphabetic';
  context.globalAlpha = 0.75;
  listed.forEach((line, i) =>
    beside
      ? context.fillText(line, pad + boxes[0].width + 36, head + 14 + i * 20)
      : context.fillText(line, pad, top + i * 17),
  );
  return new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
}

export function save(blob, name) {
  const link = el('a', { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
