// The life of a view: state from the component's value, data from the server, drawing at the size there is.

const views = new Set(); // every mounted view

function forget() {
  for (const self of views) {
    if (self.root.isConnected) continue;
    self.watcher.disconnect();
    self.flight?.abort();
    self.life.abort();
    views.delete(self);
  }
}

function asText(settings) {
  return new URLSearchParams(Object.entries(settings).map(([name, value]) => [name, String(value)])).toString();
}

function mount(element, props, watch, trigger, view) {
  const root = element.querySelector('.vv');
  const note = el('p', { class: 'vv-note', role: 'status', hidden: true });
  const heading = el('p', { class: 'vv-heading', hidden: true });
  const error = el('p', { class: 'vv-error', role: 'alert', hidden: true });
  const figure = el('div', { class: 'vv-figure' }), controls = el('div', { class: 'vv-controls' }), foot = el('div', { class: 'vv-foot' });
  const frame = el('div', { class: view.side ? 'vv-frame vv-side' : 'vv-frame', hidden: true }, figure, controls);
  const below = el('div', { class: 'vv-below', hidden: true }), live = el('p', { class: 'vv-live', 'aria-live': 'polite' });
  const self = {
    root, figure, below, view, trigger, panel: view.name, value: {}, settings: {}, data: null, ui: {}, width: 0, height: 0, ratio: 0,
    flight: null, life: null, shape: '', loaded: '',
    get key() { return self.value.key; },
    get grid() { return self.value.grid; },
    get summary() { return self.value.summary || {}; },
    /** Pixels of the canvas for each CSS pixel. */
    get density() { return Math.max(self.ratio, window.devicePixelRatio || 1); },
    path: (item, query) => `${self.key}/${self.value.panel || view.name}/${item}${query ? '?' + query : ''}`,
    array: (item, query, signal) => array(self.path(item, query), signal),
    picture: (name, signal) => picture(`${self.key}/picture/${name}`, signal),
    /** The settings that change the numbers, as the query of an address. */
    question: () => asText(Object.fromEntries(asked().map((c) => [c.name, self.settings[c.name]]))),
    control: (name) => self.value.controls.find((c) => c.name === name),
    set: (name, value) => changed(self.control(name), value),
    say: (text) => { live.textContent = text; },
    colour: (name) => getComputedStyle(root).getPropertyValue(name).trim(),
    draw,
    refresh,
    follow,
    fail,
    again: false,
    relabel: () => { furnish(); take(); draw(); },
  };
  const local = (c) => c.page && !view.fetches?.includes(c.name); // applied here, without new numbers
  const asked = () => self.value.controls.filter((c) => !local(c));
  let bar = null, pending = 0;

  root.replaceChildren(heading, note, frame, below, error, foot, live);
  furnish();
  self.watcher = new ResizeObserver(() => {
    if (!root.isConnected) return forget();
    const width = figure.clientWidth;
    if (!width || Math.abs(width - self.width) < 0.5) return;
    [self.width, self.height] = [width, window.innerHeight];
    if (self.loaded === wanted()) draw(); else refresh();
  });

  function furnish() {
    self.life?.abort();
    self.life = new AbortController(); // ends the listeners on the window
    figure.replaceChildren();
    below.replaceChildren();
    self.shape = '';
    self.ui = view.build(self);
  }

  function wanted() {
    return self.key ? `${self.key}/${self.question()}` : '';
  }

  function take() {
    const value = props.value;
    if (!value || !value.grid || (!value.key && !value.message)) return;
    const before = self.key, last = JSON.stringify(self.grid);
    self.value = { summary: {}, ...value, grid: { prefix: [], ...value.grid } };
    self.value.controls = [...(view.controls?.(self.value) || []), ...(value.controls || [])];
    error.hidden = true;
    heading.textContent = value.heading || '';
    heading.hidden = !value.heading;
    note.hidden = !value.message;
    note.textContent = value.message ? t(value.message) : '';
    frame.hidden = foot.hidden = below.hidden = Boolean(value.message);
    if (value.message) {
      self.loaded = '';
      root.dataset.ready = `${value.key}/`;
      return;
    }
    self.settings = remembered();
    const shape = JSON.stringify([self.value.controls, self.grid, value.layers, value.heads, self.summary.auto, value.second]);
    if (shape !== self.shape) build(shape);
    bar.show();
    if (before !== self.key) {
      self.flight?.abort();
      if (!view.keeps || last !== JSON.stringify(self.grid)) view.reset?.(self); // what is held is watched through pictures and training steps
    }
    self.watcher.observe(figure);
    [self.width, self.height] = [figure.clientWidth, window.innerHeight];
    if (self.width) refresh();
  }

  function build(shape) {
    self.shape = shape;
    bar = toolbar(self, changed);
    controls.replaceChildren(...bar.nodes);
    controls.hidden = !bar.nodes.length;
    controls.inert = Boolean(self.value.second); // the second of two follows the first; its own keep their room, so that both stand level
    const settable = self.value.controls.length > 0 && !self.value.second;
    foot.replaceChildren(...(view.bare ? [] : [
      settable && el('button', { type: 'button', class: 'vv-reset', text: t('Reset'), onclick: reset }),
      el('span', { class: 'vv-gap' }),
      ...(view.extras || []).map(([text, run]) => el('button', { type: 'button', text: t(text), onclick: () => run(self) })),
      el('button', { type: 'button', class: 'vv-png', text: t('Figure (PNG)'), onclick: shoot }),
      el('a', { class: 'vv-npz', text: t('Numbers (.npz)'), download: true, href: '#', onclick: (e) => { e.currentTarget.href = address(self.path('numbers.npz', asText(self.settings))); } }),
    ].filter(Boolean)));
  }

  /** Takes over the settings of the same view of another checkpoint beside it. */
  function follow() {
    self.settings = remembered();
    bar?.show();
    if (self.loaded === wanted()) draw(); else refresh();
  }

  function remembered() {
    const last = memory[view.name] || {};
    return Object.fromEntries(self.value.controls.map((c) => [c.name, sane(c, last.places?.[c.name] ? tokensAt(c, last.places[c.name], self.grid) : last[c.name], self.value)]));
  }

  function remember() {
    const places = self.value.controls.map((c) => [c.name, placesOf(c, self.settings[c.name], self.grid)]).filter(([, found]) => found);
    memory[view.name] = { ...memory[view.name], ...self.settings, places: Object.fromEntries(places) };
    for (const other of views) if (other !== self && other.view.name === view.name && other.key && other.root.isConnected) other.follow();
  }

  function changed(control, value) {
    self.settings[control.name] = value;
    remember();
    bar.show();
    if (local(control)) return draw();
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
    const told = self.value.controls.filter((c) => c.kind !== 'hidden').map((c) => `${t(c.label)}: ${spoken(c, self.settings[c.name], self.value)}`);
    const title = [self.value.title ? t(self.value.title) : t(view.title), self.value.checkpoint].filter(Boolean).join(' · ');
    save(await portrait(self, title, [view.caption?.(self), ...told, 'vitviz'].filter(Boolean)), `vitviz-${view.name}.png`);
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
        const data = await view.load(self, flight.signal);
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
    error.textContent = problem instanceof Refusal ? t(problem.message) : t('This view could not be drawn: {reason}', { reason: problem.message });
    error.hidden = false;
    if (!(problem instanceof Refusal)) console.error(problem);
  }

  function draw() {
    if (!self.data || !self.width || self.value.message || !self.loaded.startsWith(self.key + '/')) return; // never one picture's numbers under another
    view.draw(self);
    if (self.loaded === wanted()) root.dataset.ready = `${self.key}/${asText(self.settings)}`;
  }

  forget();
  views.add(self);
  watch('value', take);
  take();
  return self;
}

/** Another language: a dictionary from the English texts. */
function speak(texts) {
  window.vitviz.texts = texts;
  views.forEach((self) => self.root.isConnected && self.relabel());
}

const repaint = () => views.forEach((self) => self.root.isConnected && self.draw());
new MutationObserver(repaint).observe(document.documentElement, { attributes: true, attributeFilter: ['class'] });
const started = () => new MutationObserver(repaint).observe(document.body, { attributes: true, attributeFilter: ['class'] });
document.body ? started() : document.addEventListener('DOMContentLoaded', started);
