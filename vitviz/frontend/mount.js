// Life cycle of a view: state from the component's value, data from the server, drawing at the current size.

import { toolbar } from './controls.js';
import { aborted, Refusal } from './data.js';
import { button, div, el, fold, marked, say, whenChanged } from './elements.js';
import { send } from './events.js';
import { asWritten, t } from './i18n.js';
import { awaiting } from './progress.js';
import { load, wanted } from './requests.js';
import { mounted, roomOf } from './view_context.js';
import { closing } from './view_footer.js';
import { asText, memory, places, remember, remembered, views } from './view_state.js';

function forget() {
  for (const self of views) {
    if (self.root.isConnected) continue;
    self.watcher.disconnect();
    self.awaiting?.end();
    self.flight?.abort();
    self.life.abort();
    views.delete(self);
  }
}

/**
 * Mounts a view. `view` has a title and the functions build(self) and draw(self). items(self) and
 * pictures(self) name the data: items arrive in self.data as {values, shape}, images are "upload" or "input".
 * A view may instead fetch its data itself with load(self, signal).
 */
export function mount(element, props, watch, trigger, view) {
  const root = element.querySelector('.vv');
  const note = el('p', { class: 'vv-note', role: 'status', hidden: true });
  const heading = el('p', { class: 'vv-heading', hidden: true });
  const error = el('p', { class: 'vv-error', role: 'alert', hidden: true });
  const figure = div('vv-figure');
  const controls = div('vv-controls');
  const foot = div('vv-foot');
  const below = div('vv-below');
  const frame = el('div', { class: 'vv-frame', hidden: true }, figure, below);
  const aside = el('div', { class: 'vv-aside', hidden: true }, fold(t('Settings')), controls, foot);
  const live = el('p', { class: 'vv-live', 'aria-live': 'polite' });
  const self = Object.assign(mounted(root, { figure, below, live }, view, trigger), {
    set: (name, value) => changed(self.control(name), value),
    draw,
    refresh,
    follow,
    fail,
    given: () => props.value,
    pass,
  });
  const current = () => self.loaded === wanted(self);
  const drawing = () => current() && view.draw(self); // drawing may change the needed data
  const { measured, fitting } = roomOf(self, view, { root, figure, below }, drawing);
  /** @type {any} */
  let bar = null;
  let pending = 0;
  let fetching = Promise.resolve();
  let passing = null; // value shown in place of the server's

  // the part below goes beside the figure (walled), or into a narrow column there (edged)
  const kinds = ['scrolls', 'walled', 'edged'].filter((kind) => view[kind]);
  root.classList.add(...kinds.map((kind) => `vv-${kind}`));
  root.closest('.vitviz-figures')?.setAttribute('data-kind', [root.dataset.view, ...kinds].join(' '));
  root.replaceChildren(heading, note, frame, error, aside, live);
  furnish();
  self.watcher = new ResizeObserver(() => {
    if (!root.isConnected) return forget();
    if (!measured()) return;
    if (current()) draw();
    else refresh();
  });

  function furnish() {
    self.life?.abort();
    self.life = new AbortController(); // ends the listeners on the window
    figure.replaceChildren();
    below.replaceChildren();
    self.shape = '';
    self.fields = [];
    self.ui = {};
    self.built = false;
  }

  function take() {
    if (!root.isConnected) return forget();
    const value = passing || props.value;
    if (!value?.grid || (!value.key && !value.message)) return;
    if (value.written && !value.second) asWritten(value.written);
    const before = self.key;
    const last = JSON.stringify(self.grid);
    self.value = { summary: {}, items: {}, controls: [], ...value, grid: { prefix: [], ...value.grid } };
    error.hidden = true;
    say(heading, value.heading || '');
    note.hidden = !value.message;
    self.awaiting?.end();
    self.awaiting = value.awaited ? awaiting(value.key) : null;
    frame.hidden = aside.hidden = Boolean(value.message);
    if (value.message) {
      const painted = { heads: [], mlps: [], patches: [], patches_as: 'mean' };
      const paint = button(t('Paint over them instead'), () => send('ablate', painted));
      const restore = button(t('Restore'), () => send('restore'));
      const ways = [value.restorable && restore, value.paintable && paint].filter(Boolean);
      const buttons = ways.length ? [div('vv-buttons', ...ways)] : [];
      note.replaceChildren(t(value.message), ' ', ...(self.awaiting ? [self.awaiting.node] : buttons));
      self.loaded = '';
      if (value.awaited) delete root.dataset.ready;
      else root.dataset.ready = `${value.key}/`;
      return;
    }
    if (!self.built) [self.built, self.ui] = [true, view.build(self)];
    self.settings = remembered(self);
    if (!value.second && !memory[self.name]?.places)
      memory[self.name] = { ...memory[self.name], places: places(self) };
    const { layers, heads, second, changed: edited } = value;
    const told = [self.value.controls, self.grid, layers, heads, self.summary.auto, edited, second];
    const shape = JSON.stringify(told);
    if (shape !== self.shape) build(shape);
    bar.show();
    if (before !== self.key) {
      self.flight?.abort();
      // a selection stays across images and training snapshots
      if (!view.keeps || last !== JSON.stringify(self.grid)) view.reset?.(self);
    }
    self.watcher.observe(figure);
    self.watcher.observe(below);
    // the observer reports new sizes; measuring here would force a layout per frame
    if (!passing || !self.width) measured();
    if (self.width) refresh();
  }

  function build(shape) {
    self.shape = shape;
    bar = toolbar(self, changed);
    controls.replaceChildren(...bar.nodes, ...(view.beside?.(self) || []));
    controls.hidden = !controls.childElementCount;
    // the second follows the first; its own controls keep their space, so that both figures align
    controls.inert = Boolean(self.value.second);
    foot.replaceChildren(...(view.bare ? [] : closing(self, reset)));
  }

  /** Copies the settings from the other checkpoint's figure of this view. */
  function follow() {
    self.settings = remembered(self);
    bar?.show();
    if (current()) draw();
    else refresh();
  }

  function changed(control, value) {
    self.settings[control.name] = value;
    remember(self);
    bar.show();
    if (current()) return draw(); // no new data needed
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(refresh);
  }

  function reset() {
    self.settings = Object.fromEntries(self.value.controls.map((c) => [c.name, c.default]));
    remember(self);
    view.reset?.(self);
    bar.show();
    refresh();
  }

  /**
   * Fetches the needed data, one request at a time; a quick one may finish, so that dragging updates the
   * figure.
   */
  function refresh() {
    if (self.flight) {
      self.again = true;
      const slow = self.flight;
      setTimeout(() => self.flight === slow && slow.abort(), 250);
    } else fetching = fetched();
  }

  async function fetched() {
    do {
      self.again = false;
      const goal = wanted(self);
      const flight = new AbortController();
      if (!goal) break;
      if (self.loaded === goal) {
        // no new data, but a setting applied here may have changed together with others
        draw();
        break;
      }
      self.flight = flight;
      const slow = setTimeout(() => root.classList.add('vv-busy'), 150);
      try {
        const data = await load(self, flight.signal);
        if (goal.startsWith(`${self.key}/`)) {
          [self.data, self.loaded] = [data, goal];
          error.hidden = true;
          root.classList.remove('vv-undrawn');
          draw();
        }
      } catch (problem) {
        if (!aborted(problem)) {
          fail(problem);
        } else if (self.key && goal !== wanted(self)) {
          self.again = true;
        }
      }
      clearTimeout(slow);
      self.flight = null;
    } while (self.again && root.isConnected);
    root.classList.remove('vv-busy');
  }

  /** Shows a value in place of the server's (null: the server's again); resolves when drawn. */
  async function pass(value) {
    [passing, self.passes] = [value, Boolean(value)];
    take();
    await fetching;
    self.passes = false;
  }

  function fail(problem) {
    if (aborted(problem)) return;
    const reason = problem.message;
    const refused = problem instanceof Refusal && t(problem.sentence);
    say(error, refused || t('This view could not be drawn: {reason}', { reason }));
    root.classList.toggle('vv-undrawn', !self.data);
    if (!(problem instanceof Refusal)) console.error(problem);
  }

  function draw() {
    if (!self.read('width', () => figure.clientWidth)) {
      // hidden figures have no size; a new observation reports when the figure becomes visible
      self.width = 0;
      self.watcher.unobserve(figure);
      self.watcher.observe(figure);
    }
    // never draw one image's numbers under another image
    if (!self.data || !self.width || self.value.message || !self.loaded.startsWith(`${self.key}/`)) return;
    if (!current()) return; // or numbers that belong to other settings
    fitting();
    for (const field of self.fields) field.describe();
    if (current()) root.dataset.ready = `${self.key}/${asText(self.settings)}`;
  }

  forget();
  views.add(self);
  watch('value', take);
  take();
  return self;
}

/** Mounts a view's second figure, which exists only while there is something to show. */
export function mountBeside(element, props, watch, trigger, view) {
  const root = element.querySelector('.vv');
  const show = () => {
    const wanted = Boolean(props.value?.key);
    marked(element.closest('.block'), 'second', wanted);
    for (const part of ['.vitviz-figures', '.tabitem']) marked(element.closest(part), 'two', wanted);
    if (wanted && element.firstElementChild) return;
    element.replaceChildren(...(wanted ? [root.cloneNode()] : []));
    if (wanted) mount(element, props, watch, trigger, view);
  };
  root.remove();
  show();
  watch('value', show);
}

const repaint = () => views.forEach((self) => self.root.isConnected && self.draw());
whenChanged(document.documentElement, ['class'], repaint, false);
const started = () => whenChanged(document.body, ['class'], repaint, false);
if (document.body) started();
else document.addEventListener('DOMContentLoaded', started);

Object.assign(window, { vitviz: { views, memory, send } }); // for tests and debugging
