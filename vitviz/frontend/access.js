// Keyboard and screen-reader support that Gradio's own components lack.

import { el, marked, origin, seek, seekAll } from './elements.js';
import { t } from './i18n.js';

/**
 * Arrow keys, Home and End move between the tabs, as in the WAI-ARIA tabs pattern; only the selected tab is a
 * tab stop.
 */
function tabs() {
  const all = () => seekAll('#vitviz-tabs [role=tablist] [role=tab]');
  document.addEventListener('keydown', (event) => {
    const tab = origin(event);
    if (!tab.matches?.('#vitviz-tabs [role=tab]')) return;
    const found = all();
    const at = found.indexOf(tab);
    const last = found.length - 1;
    const next = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at ? at - 1 : last, Home: 0, End: last }[
      event.key
    ];
    if (next === undefined) return;
    event.preventDefault();
    found[next].click();
    requestAnimationFrame(() => (all()[next] || found[next]).focus());
  });
  return () => {
    for (const tab of all()) {
      const stop = tab.getAttribute('aria-selected') === 'true' ? 0 : -1;
      if (tab.tabIndex !== stop) tab.tabIndex = stop;
    }
  };
}

/**
 * Makes an open definition scrollable from the keyboard and marks its tab; Escape closes it, and in Present,
 * where it covers the figure, a click outside.
 */
function folds() {
  const opened = () => seekAll('.vitviz-fold > button.open');
  const mark = () => {
    for (const fold of seekAll('.vitviz-fold'))
      marked(fold.closest('.tabitem'), 'defined', fold.querySelector('button.open'));
  };
  const shut = (event) => {
    if (!document.documentElement.classList.contains('vv-lecturing')) return;
    opened().forEach((button) => button.parentElement.contains(origin(event)) || button.click());
  };
  document.addEventListener('pointerdown', shut);
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') opened().forEach((button) => button.click());
  });
  document.addEventListener('click', (event) => {
    if (!origin(event).closest?.('.vitviz-fold')) return;
    for (const node of seekAll('[data-testid=accordion-content]')) node.tabIndex = 0;
    requestAnimationFrame(mark); // Gradio sets the class after the event
  });
}

export function access() {
  folds();
  const skip = el('a', {
    class: 'vv-skip',
    href: '#vitviz-tabs',
    text: t('Skip to the views'),
    onclick: (event) => {
      event.preventDefault();
      seek('#vitviz-tabs [role=tab][aria-selected=true]')?.focus();
    },
  });
  seek('.gradio-container')?.prepend(skip);
  document.addEventListener('focusin', (event) => {
    // typing replaces the selected name
    const field = origin(event);
    if (field.matches?.('#vitviz-left input[role=listbox], #vitviz-left .wrap input')) field.select?.();
  });
  document.addEventListener('keydown', ({ key }) => {
    // a browser gives the focus to the list, which scrolls and then closes
    if (key === 'Tab') for (const list of seekAll('#vitviz-left .option-list')) list.tabIndex = -1;
  });
  document.addEventListener('keydown', (event) => {
    // Gradio removes the focus from a field after Enter. Focus the next control instead of none, without
    // scrolling: an error message may just have appeared.
    if (event.key !== 'Enter' || !origin(event).matches?.('#vitviz-left [role=combobox]')) return;
    const next = seek('.vv-compare > button');
    setTimeout(() => document.activeElement === document.body && next?.focus({ preventScroll: true }), 100);
  });
  const rove = tabs();
  const views = document.getElementById('vitviz-tabs');
  const options = { subtree: true, childList: true, attributes: true, attributeFilter: ['aria-selected'] };
  if (views) new MutationObserver(rove).observe(views.querySelector('.tab-wrapper') ?? views, options);
  rove();
}
