// The upload with the model's crop drawn on it; takes dropped files and hands them to the page's picture
// input.

import { el, fit } from './elements.js';
import { t } from './words.js';

function forward(files) {
  /** @type {HTMLInputElement | null} */
  const input = document.querySelector('#vitviz-upload input[type=file]');
  if (!input || !files.length) return;
  const transfer = new DataTransfer();
  transfer.items.add(files[0]);
  input.files = transfer.files;
  input.dispatchEvent(new Event('change', { bubbles: true }));
}

export default () => ({
  title: 'The picture and the crop that the model sees',
  bare: true,

  build(self) {
    const canvas = el('canvas', { role: 'img' });
    const caption = el('p', { class: 'vv-text' });
    const hint = el('div', { class: 'vv-drop', 'data-export': 'no', text: t('Drop the picture here') });
    const plot = el('div', { class: 'vv-plot vv-stage' }, canvas, hint);
    self.figure.append(el('div', { class: 'vv-stack' }, plot, caption));
    const over = (on) => (event) => {
      event.preventDefault();
      self.root.classList.toggle('vv-over', on);
    };
    const listen = (name, run) => self.root.addEventListener(name, run, { signal: self.life.signal });
    listen('dragenter', over(true));
    listen('dragover', over(true));
    listen('dragleave', (event) => {
      if (!self.root.contains(event.relatedTarget)) over(false)(event);
    });
    listen('drop', (event) => {
      over(false)(event);
      forward(event.dataTransfer.files);
    });
    return { canvas, caption };
  },

  pictures: () => ['upload'],

  draw(self) {
    const {
      upload: [w, h],
      box,
      input,
    } = self.photo;
    const picture = self.data.upload;
    const width = Math.min(self.width, (w / h) * Math.min(self.tall, window.innerWidth >= 1024 ? 160 : 150));
    const height = Math.max(8, (width * h) / w);
    const s = width / w;
    const context = fit(self.ui.canvas, width, height, self.density);
    context.imageSmoothingQuality = 'high';
    context.drawImage(picture, 0, 0, width, height);
    const [l, top, r, b] = [
      Math.max(0, box[0] * s),
      Math.max(0, box[1] * s),
      Math.min(width, box[2] * s),
      Math.min(height, box[3] * s),
    ];
    const whole = r - l > width - 1 && b - top > height - 1;
    if (!whole) {
      context.fillStyle = self.colour('--vv-paper');
      context.globalAlpha = 0.68;
      context.beginPath();
      context.rect(0, 0, width, height);
      context.rect(l, top, r - l, b - top);
      context.fill('evenodd');
      context.globalAlpha = 1;
      context.strokeStyle = 'rgb(0 0 0 / .7)';
      context.lineWidth = 3;
      context.strokeRect(l + 1.5, top + 1.5, r - l - 3, b - top - 3);
      context.strokeStyle = '#fff';
      context.lineWidth = 1.5;
      context.strokeRect(l + 1.5, top + 1.5, r - l - 3, b - top - 3);
    }
    const size = (x, y) => `${Math.round(x)} × ${Math.round(y)}`;
    const caption = whole
      ? t('{upload} px, all of it → {input} for the model', {
          upload: size(w, h),
          input: size(input[1], input[0]),
        })
      : t('{upload} px, crop {crop} → {input} for the model', {
          upload: size(w, h),
          crop: size(box[2] - box[0], box[3] - box[1]),
          input: size(input[1], input[0]),
        });
    self.ui.caption.textContent = caption;
    self.ui.canvas.setAttribute(
      'aria-label',
      `${t('The picture with the crop that the model sees')}: ${caption}`,
    );
  },
});
