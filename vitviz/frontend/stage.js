// The upload with the model's crop drawn on it; passes dropped files to the page's image input.

import { button, div, el, stack } from './elements.js';
import { listen, send } from './events.js';
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
    const edit = button(t('Edit image'), () => send('edit-image', edit), { class: 'vv-edit-picture' });
    const camera = button(t('Camera'), () => send('start-camera'), { class: 'vv-camera' });
    const tools = div('vv-tools', edit, camera);
    self.figure.append(stack(plot, caption, tools));
    const over = (on) => (event) => {
      event.preventDefault();
      self.root.classList.toggle('vv-over', on);
    };
    const onRoot = (name, run) => self.root.addEventListener(name, run, { signal: self.life.signal });
    onRoot('dragenter', over(true));
    onRoot('dragover', over(true));
    onRoot('dragleave', (event) => {
      if (!self.root.contains(event.relatedTarget)) over(false)(event);
    });
    onRoot('drop', (event) => {
      over(false)(event);
      hand(event.dataTransfer.files);
    });
    const { signal } = self.life;
    const original = async (shows) => {
      self.ui.holds = shows;
      const before = shows && (await self.picture('original', signal).catch(() => null));
      if (self.ui.holds !== shows) return;
      self.ui.before = before;
      self.draw();
    };
    listen('show-original', original, signal);
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
