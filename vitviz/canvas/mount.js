// The life of a view: state from the component's value, data from the server, drawing at the size there is.

import { toolbar } from './controls.js';
import { Refusal, address, array, picture } from './data.js';
import { el } from './elements.js';
import { portrait, save } from './export.js';
import { asText, memory, open, views } from './memory.js';
import { printButton } from './print.js';
import { roomOf } from './room.js';
import { placesOf, sane, spoken, tokensAt } from './settings.js';
import { t } from './words.js';

function forget() {
  for (const self of views) {
    if (self.root.isConnected) continue;
    self.watcher.disconnect();
    self.flight?.abort();
    self.life.abort();
    views.delete(self);
  }
}

/**
 * Mounts a view. `view` has a title and the functions build(self) and draw(self), and says with items(self) and
 * pictures(self) what it draws from: names of items, which arrive in self.data as {values, shape}, and "upload" or
 * "input". Instead of these it may have load(self, signal) and asks(self), which names all that load depends on.
 */
export function mount(element, props, watch, trigger, view) {
  const root = element.querySelector('.vv');
  const note = el('p', { class: 'vv-note', role: 'status', hidden: true });
  const heading = el('p', { class: 'vv-heading', hidden: true });
  const error = el('p', { class: 'vv-error', role: 'alert', hidden: true });
  const figure = el('div', { class: 'vv-figure' }), controls = el('div', { class: 'vv-controls' }), foot = el('div', { class: 'vv-foot' });
  const below = el('div', { class: 'vv-below' }), frame = el('div', { class: 'vv-frame', hidden: true }, figure, below);
  const aside = el('div', { class: 'vv-aside', hidden: true }, controls, foot), live = el('p', { class: 'vv-live', 'aria-live': 'polite' });
  const self = {
    root, figure, below, view, trigger, name: root.dataset.view, room: 0, side: 0, fitted: '', zoom: 1, wide: false, detail: 0, fields: [], value: {}, settings: {}, data: null, ui: {}, width: 0, tall: 0, ratio: 0,
    flight: null, life: null, shape: '', loaded: '',
    get key() { return self.value.key; },
    get grid() { return self.value.grid; },
    get summary() { return self.value.summary || {}; },
    /** The upload: its size, the box of the crop in it, and the size of the model's input. */
    get photo() { return self.value.picture; },
    /** Pixels of the canvas for each CSS pixel. */
    get density() { return Math.max(self.ratio, window.devicePixelRatio || 1); },
    path: (item, query) => `${self.key}/${self.value.view}/${item}${query ? '?' + query : ''}`,
    /** The address of an item under the present settings: only those that change it are asked. */
    item: (name) => self.path(name, asText(Object.fromEntries(self.value.items[name].map((one) => [one, self.settings[one]])))),
    get: (name, signal) => array(self.item(name), signal),
    array: (item, query, signal) => array(self.path(item, query), signal),
    picture: (name, signal) => picture(`${self.key}/picture/${name}`, signal),
    control: (name) => self.value.controls.find((c) => c.name === name),
    set: (name, value) => changed(self.control(name), value),
    /** The same view of another checkpoint, or of the same one, that stands beside this one. */
    beside: () => [...views].filter((other) => other !== self && other.name === self.name && other.key && other.root.isConnected && other.figure.offsetParent),
    /** Opens another view with some of its settings. */
    open: (name, settings) => open(name, settings),
    say: (text) => { live.textContent = text; },
    colour: (name) => getComputedStyle(root).getPropertyValue(name).trim(),
    draw,
    refresh,
    follow,
    fail,
    again: false,
    relabel: () => { furnish(); take(); draw(); },
  };
  const { measured, fitting } = roomOf(self, view, { root, figure, below });
  let bar = null, pending = 0;

  root.classList.toggle('vv-scrolls', Boolean(view.scrolls));
  root.classList.toggle('vv-walled', Boolean(view.walled)); // what stands below finds room at the side
  root.classList.toggle('vv-edged', Boolean(view.edged)); // or in a narrow column there
  root.replaceChildren(heading, note, frame, error, aside, live);
  furnish();
  self.watcher = new ResizeObserver(() => {
    if (!root.isConnected) return forget();
    if (!measured()) return;
    if (self.loaded === wanted()) draw(); else refresh();
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

  /** Names of all that is drawn from; two of them are pictures. */
  function parts() {
    return [...(view.pictures?.(self) || []).map((name) => ['picture', name]), ...(view.items?.(self) || []).map((name) => ['item', name])];
  }

  function wanted() {
    if (!self.key) return '';
    const asked = view.asks ? view.asks(self) : parts().map(([kind, name]) => (kind === 'item' ? self.item(name).slice(self.key.length) : name)).join('|');
    return `${self.key}/${asked}`;
  }

  async function load(signal) {
    if (view.load) return view.load(self, signal);
    const asked = parts();
    const found = await Promise.all(asked.map(([kind, name]) => (kind === 'item' ? array(self.item(name), signal) : self.picture(name, signal))));
    return Object.fromEntries(asked.map(([, name], i) => [name, found[i]]));
  }

  function take() {
    const value = props.value;
    if (!value || !value.grid || (!value.key && !value.message)) return;
    const before = self.key, last = JSON.stringify(self.grid);
    self.value = { summary: {}, items: {}, controls: [], ...value, grid: { prefix: [], ...value.grid } };
    error.hidden = true;
    heading.textContent = value.heading || '';
    heading.hidden = !value.heading;
    note.hidden = !value.message;
    note.textContent = value.message ? t(value.message) : '';
    frame.hidden = aside.hidden = Boolean(value.message);
    if (value.message) {
      self.loaded = '';
      root.dataset.ready = `${value.key}/`;
      return;
    }
    if (!self.built) [self.built, self.ui] = [true, view.build(self)];
    self.settings = remembered();
    if (!value.second && !memory[self.name]?.places) memory[self.name] = { ...memory[self.name], places: places() };
    const shape = JSON.stringify([self.value.controls, self.grid, value.layers, value.heads, self.summary.auto, value.second]);
    if (shape !== self.shape) build(shape);
    bar.show();
    if (before !== self.key) {
      self.flight?.abort();
      if (!view.keeps || last !== JSON.stringify(self.grid)) view.reset?.(self); // what is held is watched through pictures and training steps
    }
    self.watcher.observe(figure);
    self.watcher.observe(below);
    measured();
    if (self.width) refresh();
  }

  function build(shape) {
    self.shape = shape;
    bar = toolbar(self, changed);
    controls.replaceChildren(...bar.nodes);
    controls.hidden = !bar.nodes.length;
    controls.inert = Boolean(self.value.second); // the second of two follows the first; its own keep their room, so that both stand level
    const settable = self.value.controls.length > 0 && !self.value.second;
    const taken = (name) => (event) => { event.currentTarget.href = address(self.path(name, asText(self.settings))); };
    foot.replaceChildren(...(view.bare ? [] : [
      settable && el('button', { type: 'button', class: 'vv-reset', text: t('Reset'), onclick: reset }),
      el('span', { class: 'vv-gap' }),
      ...(self.value.files || []).map(([name, label]) => el('a', { class: 'vv-take', text: t(label), download: true, href: '#', 'data-name': name, onclick: taken(name) })),
      el('button', { type: 'button', class: 'vv-png', text: t('Figure (PNG)'), onclick: shoot }),
      printButton(self),
      el('a', { class: 'vv-npz', text: t('Numbers (.npz)'), download: true, href: '#', onclick: taken('numbers.npz') }),
    ].filter(Boolean)));
  }

  /** Takes over the settings of the same view of another checkpoint beside it. */
  function follow() {
    self.settings = remembered();
    bar?.show();
    if (self.loaded === wanted()) draw(); else refresh();
  }

  function remembered() {
    const last = memory[self.name] || {};
    return Object.fromEntries(self.value.controls.map((c) => [c.name, sane(c, last.places?.[c.name] ? tokensAt(c, last.places[c.name], self.grid, self.value) : last[c.name], self.value)]));
  }

  /** The settings that mean something else in another model: tokens as places, layers as shares of the depth. */
  function places() {
    const told = self.value.controls.map((c) => [c.name, placesOf(c, self.settings[c.name], self.grid, self.value)]);
    return Object.fromEntries(told.filter(([, found]) => found));
  }

  function remember() {
    memory[self.name] = { ...memory[self.name], ...self.settings, places: places() };
    for (const other of views) if (other !== self && other.name === self.name && other.key && other.root.isConnected) other.follow();
  }

  function changed(control, value) {
    self.settings[control.name] = value;
    remember();
    bar.show();
    if (self.loaded === wanted()) return draw(); // nothing new is to be fetched
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(refresh);
  }

  function reset() {
    self.settings = Object.fromEntries(self.value.controls.map((c) => [c.name, c.default]));
    remember();
    view.reset?.(self);
    bar.show();
    refresh();
  }

  async function shoot() {
    const told = self.value.controls.filter((c) => c.label).map((c) => `${t(c.label)}: ${spoken(c, self.settings[c.name], self.value)}`);
    const title = [t(view.title), self.value.checkpoint].filter(Boolean).join(' · ');
    save(await portrait(self, title, [view.caption?.(self), ...told, 'vitviz'].filter(Boolean)), `vitviz-${self.name}.png`);
  }

  /** Fetches what the settings ask for. One request at a time: a quick one may finish, so that dragging shows its steps. */
  async function refresh() {
    if (self.flight) {
      self.again = true;
      const slow = self.flight;
      setTimeout(() => self.flight === slow && slow.abort(), 250);
      return;
    }
    do {
      self.again = false;
      const goal = wanted(), flight = new AbortController();
      if (!goal) break;
      if (self.loaded === goal) { // nothing to fetch, but a setting that is applied here may have changed with others
        draw();
        break;
      }
      self.flight = flight;
      const slow = setTimeout(() => root.classList.add('vv-busy'), 150);
      try {
        const data = await load(flight.signal);
        if (goal.startsWith(self.key + '/')) {
          [self.data, self.loaded] = [data, goal];
          error.hidden = true;
          draw();
        }
      } catch (problem) {
        if (problem.name !== 'AbortError') {
          fail(problem);
        } else if (self.key && goal !== wanted()) {
          self.again = true;
        }
      }
      clearTimeout(slow);
      self.flight = null;
    } while (self.again && root.isConnected);
    root.classList.remove('vv-busy');
  }

  function fail(problem) {
    if (problem.name === 'AbortError') return;
    error.textContent = problem instanceof Refusal ? t(problem.sentence) : t('This view could not be drawn: {reason}', { reason: problem.message });
    error.hidden = false;
    if (!(problem instanceof Refusal)) console.error(problem);
  }

  function draw() {
    if (!self.data || !self.width || self.value.message || !self.loaded.startsWith(self.key + '/')) return; // never one picture's numbers under another
    if (self.loaded !== wanted()) return; // nor numbers under settings that they are not of
    fitting();
    if (self.loaded === wanted()) root.dataset.ready = `${self.key}/${asText(self.settings)}`;
  }

  forget();
  views.add(self);
  watch('value', take);
  take();
  return self;
}

const repaint = () => views.forEach((self) => self.root.isConnected && self.draw());
new MutationObserver(repaint).observe(document.documentElement, { attributes: true, attributeFilter: ['class'] });
const started = () => new MutationObserver(repaint).observe(document.body, { attributes: true, attributeFilter: ['class'] });
if (document.body) started(); else document.addEventListener('DOMContentLoaded', started);

Object.assign(window, { vitviz: { views, memory } }); // for tests, and for who looks into the page
