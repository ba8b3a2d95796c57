// Which views are mounted, and the settings that they were left with.

import { seek } from './elements.js';
import { placesOf, sane, tokensAt } from './settings.js';
import names from './views.js';

/** Every mounted view.
 * @type {Set<any>} */
export const views = new Set();
/** What the entry in view of the browser's history says was seen; a reload comes back to it. */
export function kept() {
  const moment = window.history?.state?.vitviz;
  return typeof moment?.checkpoint === 'string' ? moment : undefined;
}

/** View -> settings, so that a view mounted again comes back as it was left; those of a link to begin with.
 * @type {Record<string, any>} */
export const memory = linked();

function linked() {
  const { tab, without, ...settings } = Object.fromEntries(new URLSearchParams(window.location.search));
  return { ...kept()?.settings, ...(names.includes(tab) ? { [tab]: settings } : {}) };
}

const PATIENCE = 5000; // ms that a view is waited for which is never told

/**
 * Resolves when every view that can be seen has been told of a checkpoint and drawn it; one of an average
 * over a set is of no step, and one beside is of another checkpoint.
 */
export async function settled(checkpoint) {
  const end = performance.now() + PATIENCE;
  const waits = (self) => {
    const { key, scene, second } = self.value;
    if (second || !key || key === scene || !self.figure.offsetParent) return false;
    return self.flight || (self.value.checkpoint !== checkpoint && performance.now() < end);
  };
  do await new Promise((resolve) => requestAnimationFrame(resolve));
  while ([...views].some(waits));
}

export const asText = (settings) => new URLSearchParams(settings).toString();

/** Opens a view's tab, with some of its settings. */
export function open(name, settings) {
  memory[name] = { ...memory[name], ...settings };
  for (const other of views)
    if (other.name === name && other.key && !other.value.message && other.root.isConnected) other.follow();
  seek(`#vitviz-tabs button[role=tab][aria-controls*="${name}"]`)?.click();
}

/**
 * Puts the settings of all views in place of what they are, as texts: those of a lesson, say. A view that
 * does not yet show this checkpoint on this picture takes them with it.
 */
export function put(settings, { scene, checkpoint }) {
  for (const name of names) memory[name] = { ...settings?.[name] };
  for (const self of views) {
    const { value, root } = self;
    const ready = value.scene === scene && value.checkpoint === checkpoint && !value.message;
    if (!ready || value.second || !root.isConnected || !names.includes(self.name)) continue;
    self.follow();
    remember(self);
  }
}

/**
 * What a view was left with, as it is allowed and meant in the model that it shows now; over a video's frames
 * what is `still` takes the place of what would be another thing in each.
 */
export function remembered(self) {
  const still = self.value.still ?? {};
  const last = { ...memory[self.name] };
  for (const [name, value] of Object.entries(still))
    if ((last[name] ?? self.control(name)?.default) === self.control(name)?.default) last[name] = value;
  return Object.fromEntries(
    self.value.controls.map((c) => [
      c.name,
      sane(
        c,
        c.name === 'difference' && !self.value.changed // of a picture as it was there is none
          ? c.default
          : last.places?.[c.name]
            ? tokensAt(c, last.places[c.name], self.grid, self.value)
            : last[c.name],
        self.value,
      ),
    ]),
  );
}

/** The settings that mean something else in another model: tokens as places, layers as shares of all. */
export function places(self) {
  const told = self.value.controls.map((c) => [
    c.name,
    placesOf(c, self.settings[c.name], self.grid, self.value),
  ]);
  return Object.fromEntries(told.filter(([, found]) => found));
}

/** The same view of another checkpoint, or of the same one. */
export const twins = (self) =>
  [...views].filter((one) => one !== self && one.name === self.name && one.key && one.root.isConnected);

/** Keeps the settings of a view, for itself and for the same view of another checkpoint beside it. */
export function remember(self) {
  const own = Object.entries(self.settings).filter(([name, value]) => self.value.still?.[name] !== value);
  memory[self.name] = { ...memory[self.name], ...Object.fromEntries(own), places: places(self) };
  for (const other of twins(self)) other.follow();
}
