// The mounted views, and the settings that each was left with.

import { seek } from './elements.js';
import { placesOf, sane, tokensAt } from './settings.js';
import names from './views.js';

/** Every mounted view.
 * @type {Set<any>} */
export const views = new Set();
/** The state stored in the current entry of the browser's history, which a reload restores. */
export function kept() {
  const moment = window.history?.state?.vitviz;
  return typeof moment?.checkpoint === 'string' ? moment : undefined;
}

/**
 * View -> settings, so that a remounted view keeps its settings; initially those of a link.
 * @type {Record<string, any>}
 */
export const memory = linked();

function linked() {
  const { tab, without, ...settings } = Object.fromEntries(new URLSearchParams(window.location.search));
  return { ...kept()?.settings, ...(names.includes(tab) ? { [tab]: settings } : {}) };
}

const PATIENCE = 5000; // ms to wait for a view that is never updated

/**
 * Resolves when every visible view has received and drawn a checkpoint. Averages over a set and second
 * figures are skipped, because they don't belong to a training snapshot.
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

/** Opens a view's tab with some settings. */
export function open(name, settings) {
  memory[name] = { ...memory[name], ...settings };
  for (const other of views)
    if (other.name === name && other.key && !other.value.message && other.root.isConnected) other.follow();
  seek(`#vitviz-tabs button[role=tab][aria-controls*="${name}"]`)?.click();
}

/**
 * Replaces the settings of all views, given as strings, for example from a lesson. A view that does not yet
 * show this checkpoint and image applies them when it does.
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
 * The settings that a view was left with, adapted to the current model. Over a video's frames, `still`
 * replaces defaults that would differ between frames.
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
        c.name === 'difference' && !self.value.changed // an unchanged image has no difference
          ? c.default
          : last.places?.[c.name]
            ? tokensAt(c, last.places[c.name], self.grid, self.value)
            : last[c.name],
        self.value,
      ),
    ]),
  );
}

/** Settings whose meaning depends on the model, as relative positions: tokens and layers. */
export function places(self) {
  const told = self.value.controls.map((c) => [
    c.name,
    placesOf(c, self.settings[c.name], self.grid, self.value),
  ]);
  return Object.fromEntries(told.filter(([, found]) => found));
}

/** Mounted figures of the same view, for another checkpoint or the same. */
export const twins = (self) =>
  [...views].filter((one) => one !== self && one.name === self.name && one.key && one.root.isConnected);

/** Stores the settings of a view, for itself and for the other checkpoint's figure of the same view. */
export function remember(self) {
  const own = Object.entries(self.settings).filter(([name, value]) => self.value.still?.[name] !== value);
  memory[self.name] = { ...memory[self.name], ...Object.fromEntries(own), places: places(self) };
  for (const other of twins(self)) other.follow();
}
