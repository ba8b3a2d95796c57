// What every function of a view is handed as `self`: its places on the page, its state, what it may ask;
// and the room that a figure has, with how tall it is drawn in it.

import { array, picture } from './data.js';
import { asText, open, twins } from './view_state.js';

/** The state of a view before anything is known of its picture. */
export function mounted(root, { figure, below, live }, view, trigger) {
  const known = new Map(); // of the page's layout and style
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
    fields: [],
    value: {},
    settings: {},
    data: null,
    ui: {},
    width: 0,
    tall: 0,
    ratio: 0,
    passes: false, // whether one of many pictures is just being shown, as a camera's
    flight: null,
    life: null,
    awaiting: null, // a pass, as long as it is being made
    shape: '',
    loaded: '',
    get key() {
      return self.value.key;
    },
    get grid() {
      return self.value.grid;
    },
    /** How high it is beside the figure; 0 where the page is as long as what stands on it. */
    get deep() {
      return self.room && self.read('deep', () => below.clientHeight);
    },
    /** How wide it is there. */
    get across() {
      return self.read('across', () => below.clientWidth);
    },
    get summary() {
      return self.value.summary || {};
    },
    /** The upload: its size, the box of the crop in it, and the size of the model's input. */
    get photo() {
      return self.value.picture;
    },
    /** Pixels of the canvas for each CSS pixel. */
    get density() {
      return Math.max(self.ratio, window.devicePixelRatio || 1);
    },
    /** What `ask` reads of the page's layout or style; for a picture that passes, as it was before. */
    read(name, ask) {
      if (!self.passes || !known.has(name)) known.set(name, { ask, is: ask() });
      return known.get(name).is;
    },
    /** Reads all that, while nothing is changed yet: later, each would lay out the page once more. */
    reread: () => known.forEach((one) => (one.is = one.ask())),
    path: (item, query) => `${self.key}/${self.value.view}/${item}${query ? `?${query}` : ''}`,
    /** The address of an item under the present settings: only those that change it are asked. */
    item: (name) =>
      self.path(
        name,
        asText(Object.fromEntries(self.value.items[name].map((one) => [one, self.settings[one]]))),
      ),
    get: (name, signal) => array(self.item(name), signal),
    array: (item, query, signal) => array(self.path(item, query), signal),
    picture: (name, signal) => picture(`${self.key}/picture/${name}`, signal),
    control: (name) => self.value.controls.find((c) => c.name === name),
    /** Its twins that stand beside it. */
    beside: () => twins(self).filter((other) => other.figure.offsetParent),
    open: (name, settings) => open(name, settings),
    say: (text) => (live.textContent = text),
    colour: (name) => self.read(name, () => getComputedStyle(root).getPropertyValue(name).trim()),
    again: false,
  };
  return self;
}

const KEPT = 60; // px that may stay empty until a figure is drawn larger again

/**
 * Of a mounted view: `measured` takes the room anew, `fitting` draws the figure as large as that allows, as
 * often as it takes, with `draw`, false where there is nothing to be drawn any more.
 */
export function roomOf(self, view, { root, figure, below }, draw) {
  /** Takes the room for the figure, bounded below in a shell of the window's height; whether it changed. */
  function measured() {
    const width = figure.clientWidth;
    const shell = getComputedStyle(figure).getPropertyValue('--vv-shell').trim() === '1';
    const room = shell ? figure.clientHeight : 0;
    const side = shell && (view.walled || view.edged) ? below.clientHeight + below.clientWidth : 0;
    // of texts that are drawn
    const zoom = parseFloat(getComputedStyle(figure).getPropertyValue('--vv-zoom')) || 1;
    const same = [width - self.width, room - self.room, side - self.side, 99 * (zoom - self.zoom)].every(
      (change) => Math.abs(change) < 0.5,
    );
    if (!width || same) return false;
    [self.width, self.room, self.side, self.zoom, self.fitted] = [width, room, side, zoom, ''];
    // whether what explains a drawing stands beside it
    self.wide = width >= 560 * zoom && (!room || width > room * 1.1);
    self.detail = self.wide ? Math.round(Math.max(200 * zoom, Math.min(400, width * 0.3))) : width;
    root.classList.toggle('vv-wide', self.wide);
    root.style.setProperty('--vv-detail', `${self.detail}px`);
    return true;
  }

  /** How high the figure is, without what may be scrolled to where the cell is narrow. */
  function needed() {
    const rest = self.wide ? [] : [...figure.querySelectorAll('.vv-rest')];
    const spare = rest.reduce((sum, node) => sum + node.getBoundingClientRect().height + 8, 0);
    return (figure.firstElementChild?.getBoundingClientRect().height || 0) - spare;
  }

  /** Draws as tall as there is room: what a view puts around its drawing is known only once it stands. */
  function fitting() {
    if (!self.room || view.scrolls) {
      const page = Math.min(window.innerHeight * 0.66, 1.1 * self.width); // of one that is scrolled
      self.tall = Math.max(300, Math.min(960, self.room || page));
      return draw();
    }
    const shape = `${self.width}/${self.room}/${self.shape}`;
    if (self.fitted === shape) {
      draw();
      const spare = self.room - self.read('needed', needed);
      if (spare > -0.5 && spare < KEPT) return; // a click moves nothing for the sake of a line more or less
    }
    self.fitted = shape;
    self.tall = self.room;
    let low = 120;
    let top = self.room;
    let high = 0; // as tall as `low` it has room
    for (let i = 0; i < 9; i++) {
      if (draw() === false) {
        self.fitted = ''; // it asked for something else, of which the room is taken anew
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
