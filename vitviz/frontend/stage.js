// The upload with the model's crop drawn on it; passes dropped files to the page's image input.

import { button, div, el, stack } from './elements.js';
import { hand } from './file_drop.js';
import { t } from './i18n.js';
import { drawCrop, rim } from './removed_patches.js';

export default () => ({
  title: 'Image and the crop that the model receives',
  bare: true,

  build(self) {
    const canvas = el('canvas', { role: 'img' });
    const caption = el('p', { class: 'vv-text' });
    const hint = el('div', { class: 'vv-drop', 'data-export': 'no', text: t('Drop the image here') });
    const plot = div('vv-plot vv-stage', canvas, hint);
    const ask = (asked) => (event) =>
      event.currentTarget.dispatchEvent(new CustomEvent(`vitviz:${asked}`, { bubbles: true }));
    const tool = (text, name, asked) => button(text, ask(asked), { class: name });
    const edit = tool(t('Edit image'), 'vv-edit-picture', 'board');
    const tools = div('vv-tools', edit, tool(t('Camera'), 'vv-camera', 'camera'));
    self.figure.append(stack(plot, caption, tools));
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
      hand(event.dataTransfer.files);
    });
    document.addEventListener(
      'vitviz:original',
      async (/** @type {CustomEvent} */ { detail }) => {
        self.ui.holds = detail;
        const before = detail && (await self.picture('original', self.life.signal).catch(() => null));
        if (self.ui.holds !== detail) return;
        self.ui.before = before;
        self.draw();
      },
      { signal: self.life.signal },
    );
    return { canvas, caption, holds: false, before: null };
  },

  pictures: () => ['upload'],

  draw(self) {
    const { upload, box, input } = self.photo;
    const [w, h] = upload;
    const most = window.innerWidth < 768 ? 76 : 160; // on a phone a thumbnail, above "Change"
    const { told } = self.value;
    // camera frames are as tall as the image, so that nothing moves
    const tall = (told && self.ui.height) || Math.min(self.tall, most);
    const width = Math.min(self.width, (w / h) * tall);
    const shown = self.ui.before ? { ...self, data: { upload: self.ui.before } } : self;
    const { context, crop } = drawCrop(shown, self.ui.canvas, width, Math.max(8, (width * h) / w));
    if (!told) self.ui.height = (width * h) / w;
    self.ui.caption.style.minHeight = told ? self.ui.caption.style.minHeight : '';
    if (crop) {
      rim(context, crop, 'rgb(0 0 0 / .7)', 3, 1.5);
      rim(context, crop, '#fff', 1.5, 1.5);
    }
    const size = (x, y) => `${Math.round(x)} × ${Math.round(y)}`;
    const sizes = { upload: size(w, h), input: size(input[1], input[0]) };
    const [across, down] = [box[2] - box[0], box[3] - box[1]];
    const cut = size(across, Math.abs(across - down) < 1 ? across : down); // square up to rounding
    const caption = crop
      ? t('{upload} px, crop {crop} → {input} for the model', { ...sizes, crop: cut })
      : t('{upload} px, uncropped → {input} for the model', sizes);
    self.ui.caption.textContent = told || caption;
    if (!told) self.ui.caption.style.minHeight = `${self.ui.caption.offsetHeight}px`;
    self.ui.canvas.setAttribute(
      'aria-label',
      `${t('Image with the crop that the model receives')}: ${caption}`,
    );
  },
});
