// The settings that the address asks for, put where the views look for them; runs before any view is mounted. A value
// that does not fit is passed over; each view checks once more against its own picture and model.
(() => {
  'use strict';
  const known = KNOWN;
  window.vitviz.known = known;
  const asked = new URLSearchParams(window.location.search), tab = asked.get('tab');
  if (!Object.hasOwn(known, tab)) return;
  const fitting = (fits, text) => {
    if (fits.options) return fits.options.includes(text) ? text : undefined;
    if (fits.pattern) return new RegExp(`^(?:${fits.pattern})$`).test(text) ? text : undefined;
    const number = /^-?\d{1,9}(\.\d{1,9})?$/.test(text) ? Number(text) : NaN;
    return number >= fits.minimum && number <= fits.maximum && (!fits.whole || Number.isInteger(number)) ? number : undefined;
  };
  const settings = {};
  for (const [name, fits] of Object.entries(known[tab])) {
    const value = asked.has(name) ? fitting(fits, asked.get(name)) : undefined;
    if (value !== undefined) settings[name] = value;
  }
  if (Object.keys(settings).length) window.vitviz.memory[tab] = settings;
})();
