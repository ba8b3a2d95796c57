// Which views are mounted, and the settings that they were left with.

import names from './views.js';

/** Every mounted view. */
export const views = new Set();
/** View -> settings, so that a view mounted again comes back as it was left; those of a link to begin with. */
export const memory = linked();

function linked() {
  const { tab, without, ...settings } = Object.fromEntries(new URLSearchParams(window.location.search));
  return names.includes(tab) ? { [tab]: settings } : {};
}

export function asText(settings) {
  return new URLSearchParams(Object.entries(settings).map(([name, value]) => [name, String(value)])).toString();
}

/** Opens a view's tab, with some of its settings. */
export function open(name, settings) {
  memory[name] = { ...memory[name], ...settings };
  for (const other of views) if (other.name === name && other.key && other.root.isConnected) other.follow();
  document.querySelector(`#vitviz-tabs button[role=tab][aria-controls*="${name}"]`)?.click();
}
