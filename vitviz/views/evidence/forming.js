// The answer forming: what the classifier would say if the model ended at a depth.

import { el, fit } from '../../canvas/elements.js';
import { t } from '../../canvas/words.js';

// told apart with any colour vision
const COLOURS = ['#2f7fc0', '#c46a16', '#2a8a63', '#a3528c', '#7a6a00'];

/** What the classifier would say if the model ended at a depth. */
export function drawForming(self, made) {
  const { forming } = self.data;
  const [depths, count] = forming.shape;
  const width = Math.max(260, self.below.clientWidth);
  const room = self.below.clientHeight || 420;
  const size = self.zoom;
  const tall = Math.max(180 * size, Math.min(380 * size, room - 120 * size));
  const context = fit(made.chart, width, tall, self.density);
  const [left, right, top, bottom] = [44 * size, 12, 10 * size, 42 * size];
  const x = (depth) => left + (depth / (depths - 1)) * (width - left - right);
  const y = (share) => top + (1 - share) * (tall - top - bottom);
  const ink = self.colour('color');
  made.chart.parentElement.hidden = made.title.hidden = false;
  made.title.textContent = t('The answer forming: probability if the model ended there');
  context.font = `${12 * self.zoom}px ${self.colour('font-family')}`;
  context.fillStyle = ink;
  context.textBaseline = 'middle';
  context.textAlign = 'right';
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    context.globalAlpha = 0.14;
    context.fillRect(left, y(share), width - left - right, 1);
    context.globalAlpha = 0.85;
    context.fillText(`${100 * share} %`, left - 6, y(share));
  }
  context.globalAlpha = 1;
  context.lineWidth = 2;
  for (let c = 0; c < count; c++) {
    context.strokeStyle = COLOURS[c];
    context.beginPath();
    for (let depth = 0; depth < depths; depth++)
      context.lineTo(x(depth), y(forming.values[depth * count + c]));
    context.stroke();
  }
  context.textAlign = 'center';
  context.textBaseline = 'top';
  const every = Math.max(1, Math.ceil((22 * size) / ((width - left - right) / (depths - 1))));
  for (let depth = 0; depth < depths; depth += every)
    context.fillText(String(depth), x(depth), tall - bottom + 6 * size);
  context.fillText(t('after so many layers'), left + (width - left - right) / 2, tall - 16 * size);
  made.legend.replaceChildren(
    ...self.ui.classes.map((one, i) =>
      el(
        'span',
        { class: 'vv-legend' },
        el('span', { class: 'vv-dot-key', style: `background:${COLOURS[i]}` }),
        el('span', { text: one.name }),
      ),
    ),
  );
  made.chart.setAttribute('aria-label', made.title.textContent);
  made.said.textContent = t(
    'The final norm is applied afresh at every depth; early layers were never trained to be read so.',
  );
  made.plot.hidden = made.wallTitle.hidden = true;
}
