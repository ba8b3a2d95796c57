// Similarity (CKA) of the layers of one or two checkpoints over an image set, with statistics of heads and
// branches.

import { aborted, unpacked } from '../../frontend/data.js';
import { el, marked, running, stack } from '../../frontend/elements.js';
import { ofASet, t } from '../../frontend/i18n.js';
import { matrix } from '../../frontend/matrix.js';
import { chartBeside } from '../../frontend/plotly_chart.js';

/** True if this is the second figure and its chart has the lines of the first. */
const repeats = (self) => self.value.second && self.settings.against !== 'before';

/** Hides the second figure where its matrix is the first's, transposed. */
function pair(self) {
  const figures = self.root.closest('.vitviz-figures');
  const two = Boolean(self.summary.beside) && self.settings.against !== 'beside';
  marked(figures?.querySelector('.vitviz-beside'), 'second', two);
  marked(figures, 'two', two);
  marked(self.root, 'across', two && self.settings.against !== 'before');
}

/** True if the requested comparison exists: a second checkpoint, or a training history. */
const there = (self) => !(self.settings.against in self.summary.missing);

export default () => ({
  title: 'Similarity over an image set',
  walled: true,
  caption: (self) => said(self),

  build(self) {
    const far = running(t('Training steps processed'), () => this.toggle(self));
    const drawn = matrix(self);
    drawn.node.hidden = true;
    const over = el('p', { class: 'vv-text', text: t('Comparing the layers over the image set …') });
    self.figure.append(stack(far.node, drawn.node, over));
    const curve = chartBeside(self);
    self.below.append(curve.node);
    return { far, life: null, stopped: '', drawn, over, curve };
  },

  items: (self) => [there(self) && 'matrix', !repeats(self) && 'chart'].filter(Boolean),

  /** The items to draw; without the matrix if its computation was stopped. */
  async load(self, signal) {
    const followed = await this.follow(self, signal);
    const names = this.items(self).filter((name) => followed || name === 'chart');
    const found = await Promise.all(names.map((name) => self.get(name, signal)));
    return Object.fromEntries(names.map((name, i) => [name, found[i]]));
  },

  /** Processes the images with each training snapshot in turn; false if stopped. */
  async follow(self, signal) {
    const { ui } = self;
    const count = self.settings.against === 'film' ? self.summary.steps : 0;
    const question = `${self.key}/${count}`;
    if (ui.stopped === question) return false; // selecting another curve doesn't resume
    const life = new AbortController();
    const show = (on, done, text) =>
      ui.far.show({ on, whole: done === count, share: done / (count || 1), start: t('Continue'), text });
    ui.life = life;
    if (count) {
      // what is drawn belongs to other settings
      ui.drawn.node.hidden = ui.curve.node.hidden = true;
      ui.over.textContent = '';
    }
    signal.addEventListener('abort', () => life.abort());
    let done = 0;
    try {
      for (; done < count; done++) {
        show(true, done, t('{done} of {count} training steps', { done, count }));
        await self.array('looked', `frame=${done}`, life.signal);
      }
    } catch (problem) {
      show(false, done, t('Stopped. Results so far are kept.'));
      if (!aborted(problem) || signal.aborted) throw problem;
      ui.stopped = question;
    }
    ui.life = null;
    if (done === count) show(false, done, '');
    return done === count;
  },

  toggle(self) {
    if (self.ui.life) return self.ui.life.abort();
    [self.loaded, self.ui.stopped] = ['', ''];
    self.refresh();
  },

  draw(self) {
    const { ui, data } = self;
    pair(self);
    const known = there(self) && Boolean(data.matrix);
    ui.drawn.node.hidden = !known;
    ui.over.textContent = there(self)
      ? [earliest(self), said(self)].filter(Boolean).join(' ')
      : t(self.summary.missing[self.settings.against]);
    if (known) {
      const height = Math.min(self.tall, self.width); // square, if there is space
      const room = { width: self.width, height, most: 64 * self.zoom };
      ui.drawn.draw(unpacked(data.matrix), room);
    }
    this.curves(self);
  },

  /** The selected curve of this checkpoint, and of the one that it is compared with, on one axis. */
  curves(self) {
    const { ui, data } = self;
    ui.curve.node.hidden = repeats(self);
    if (repeats(self)) return;
    const [above, own] = [self.figure, self.below].map((node) => node.getBoundingClientRect().top);
    const level = Math.abs(above - own) < 8;
    const room = self.below.clientHeight;
    const foot = 64 * self.zoom;
    const most = self.room && level ? room - foot - 30 : self.room ? window.innerHeight * 0.16 : 260;
    ui.curve.draw(unpacked(data.chart), Math.max(160, self.across - 4), Math.min(420 * self.zoom, most));
  },
});

/** What the columns are, if they are the earliest training step. */
function earliest({ settings: { against }, summary: { earliest: step } }) {
  if (against !== 'before') return '';
  return step
    ? t('The columns are the model after {step} training steps.', { step })
    : t('The columns are the model before training (step 0).');
}

/** Text on the image set. */
const said = ({ summary: { pictures } }) =>
  pictures === null ? t('Based on 20 crops of four images: too few to generalise.') : ofASet(pictures);
