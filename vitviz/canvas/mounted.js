// What every function of a view is handed as `self`: its places on the page, its state, what it may ask.

import { array, picture } from './data.js';
import { asText, open, views } from './memory.js';

/** The state of a view before anything is known of its picture. */
export function mounted(root, { figure, below, live }, view, trigger) {
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
      return self.room && below.clientHeight;
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
    /** The same view of another checkpoint, or of the same one, that stands beside this one. */
    beside: () =>
      [...views].filter(
        (other) =>
          other !== self &&
          other.name === self.name &&
          other.key &&
          other.root.isConnected &&
          other.figure.offsetParent,
      ),
    /** Opens another view with some of its settings. */
    open: (name, settings) => open(name, settings),
    say: (text) => (live.textContent = text),
    colour: (name) => getComputedStyle(root).getPropertyValue(name).trim(),
    again: false,
  };
  return self;
}
