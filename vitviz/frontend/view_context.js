// The `self` that every function of a view receives: elements, state and requests. Also measures a figure's
// space and fits the figure into it.

import { array, picture } from './data.js';
import { asText, open, twins } from './view_state.js';

/** The state of a view before its first value. */
export function mounted(root, { figure, below, live }, view, trigger) {
  const known = new Map(); // cached reads of layout and style
  const self = {
    root,
    figure,
    below,
    view,
    trigger,
    name: root.dataset.view,
    room: 0,
    side: 0,
    fitted: '',
    zoom: 1,
    wide: false,
    detail: 0,
    /** @type {{describe: () => void, follow: Function, out: Function, hold: Function}[]} */
    fields: [],
    value: {},
    settings: {},
    data: null,
    ui: {},
    width: 0,
    tall: 0,
    ratio: 0,
    passes: false, // True while one of many images, such as camera frames, is shown
    /** @type {AbortController | null} */
    flight: null,
    /** @type {AbortController | null} */
    life: null,
    /** @type {any} */
    awaiting: null, // progress of a pending pass
    shape: '',
    loaded: '',
    get key() {
      return self.value.key;
    },
    get grid() {
      return self.value.grid;
    },
    /** Height of the part beside the figure; 0 if the page scrolls. */
    get deep() {
      return self.room && self.read('deep', () => below.clientHeight);
    },
    /** Width of the part beside or below the figure. */
    get across() {
      return self.read('across', () => below.clientWidth);
    },
    get summary() {
      return self.value.summary || {};
    },
    /** The upload: its size, the crop's box in it, and the size of the model's input. */
    get photo() {
      return self.value.picture;
    },
    /** Canvas pixels per CSS pixel. */
    get density() {
      return Math.max(self.ratio, window.devicePixelRatio || 1);
    },
    /** Reads layout or style with `ask`; for frames of a camera or video, the cached value. */
    read(name, ask) {
      if (!self.passes || !known.has(name)) known.set(name, { ask, is: ask() });
      return known.get(name).is;
    },
    /** Refreshes all cached reads before anything changes; later, each read would force a layout. */
    reread: () => known.forEach((one) => (one.is = one.ask())),
    path: (item, query) => `${self.key}/${self.value.view}/${item}${query ? `?${query}` : ''}`,
    /** The address of an item under the current settings, with only the settings that affect it. */
    item: (name) =>
      self.path(
        name,
        asText(Object.fromEntries(self.value.items[name].map((one) => [one, self.settings[one]]))),
      ),
    get: (name, signal) => array(self.item(name), signal),
    array: (item, query, signal) => array(self.path(item, query), signal),
    picture: (name, signal) => picture(`${self.key}/picture/${name}`, signal),
    control: (name) => self.value.controls.find((c) => c.name === name),
    /** Visible figures of this view for another checkpoint. */
    beside: () => twins(self).filter((other) => other.figure.offsetParent),
    open: (name, settings) => open(name, settings),
    say: (text) => (live.textContent = text),
    colour: (name) => self.read(name, () => getComputedStyle(root).getPropertyValue(name).trim()),
    again: false,
  };
  return self;
}

const KEPT = 60; // px that may stay empty before a figure is enlarged

/**
 * Layout of a mounted view. `measured` reads the available space. `fitting` draws the figure as large as
 * fits, calling `draw` repeatedly; `draw` returns false if there is nothing to draw any more.
 */
export function roomOf(self, view, { root, figure, below }, draw) {
  /**
   * Measures the figure's space, which is limited if the shell has the window's height; true if it changed.
   */
  function measured() {
    const width = figure.clientWidth;
    const shell = getComputedStyle(figure).getPropertyValue('--vv-shell').trim() === '1';
    const room = shell ? figure.clientHeight : 0;
    const side = shell && (view.walled || view.edged) ? below.clientHeight + below.clientWidth : 0;
    // of drawn texts
    const zoom = parseFloat(getComputedStyle(figure).getPropertyValue('--vv-zoom')) || 1;
    const same = [width - self.width, room - self.room, side - self.side, 99 * (zoom - self.zoom)].every(
      (change) => Math.abs(change) < 0.5,
    );
    if (!width || same) return false;
    [self.width, self.room, self.side, self.zoom, self.fitted] = [width, room, side, zoom, ''];
    // True if the explanation of a drawing goes beside it
    self.wide = width >= 560 * zoom && (!room || width > room * 1.1);
    self.detail = self.wide ? Math.round(Math.max(200 * zoom, Math.min(400, width * 0.3))) : width;
    root.classList.toggle('vv-wide', self.wide);
    root.style.setProperty('--vv-detail', `${self.detail}px`);
    return true;
  }

  /** Height of the figure, without the parts that may be scrolled to in narrow layouts. */
  function needed() {
    const rest = self.wide ? [] : [...figure.querySelectorAll('.vv-rest')];
    const spare = rest.reduce((sum, node) => sum + node.getBoundingClientRect().height + 8, 0);
    return (figure.firstElementChild?.getBoundingClientRect().height || 0) - spare;
  }

  /** Draws as tall as fits; the height of a view's elements around the drawing is known only afterwards. */
  function fitting() {
    if (!self.room || view.scrolls) {
      const page = Math.min(window.innerHeight * 0.66, 1.1 * self.width); // of a scrolling page
      self.tall = Math.max(300, Math.min(960, self.room || page));
      return draw();
    }
    const shape = `${self.width}/${self.room}/${self.shape}`;
    if (self.fitted === shape) {
      draw();
      const spare = self.room - self.read('needed', needed);
      if (spare > -0.5 && spare < KEPT) return; // small changes after a click do not resize the figure
    }
    self.fitted = shape;
    self.tall = self.room;
    let low = 120;
    let top = self.room;
    let high = 0; // needed height at `tall`
    for (let i = 0; i < 9; i++) {
      if (draw() === false) {
        self.fitted = ''; // new data was requested; its size is measured again
        return;
      }
      const before = high;
      const tall = self.tall;
      high = needed();
      const over = high - self.room;
      const fits = over <= 0.5;
      if (fits) low = tall;
      else top = tall - 1;
      if (fits && (over > -6 || high === before || tall >= top)) return;
      if (top <= low) break;
      self.tall = Math.max(low, Math.min(top, i < 3 ? tall - Math.ceil(over) : Math.round((low + top) / 2)));
    }
    self.tall = low;
    draw();
  }

  return { measured, fitting };
}
