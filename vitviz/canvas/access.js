// What Gradio's own components lack for the keyboard and for who listens to the page.

import { el } from './elements.js';
import { t } from './words.js';

/** Arrow keys, Home and End go through the tabs, as the pattern of the WAI says; only the chosen one is a stop of Tab. */
function tabs() {
  const list = () => document.querySelector('#vitviz-tabs [role=tablist]');
  const all = () => [...list().querySelectorAll('[role=tab]')];
  document.addEventListener('keydown', (event) => {
    if (!event.target.matches?.('#vitviz-tabs [role=tab]')) return;
    const found = all(), at = found.indexOf(event.target), last = found.length - 1;
    const next = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at ? at - 1 : last, Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    found[next].click();
    requestAnimationFrame(() => (all()[next] || found[next]).focus());
  });
  const rove = () => list() && all().forEach((tab) => {
    const stop = tab.getAttribute('aria-selected') === 'true' ? 0 : -1;
    if (tab.tabIndex !== stop) tab.tabIndex = stop;
    if (!stop && tab !== rove.last) [rove.last, tab.parentNode.parentNode.scrollLeft] = [tab, tab.offsetLeft - 60];
  });
  return rove;
}

/** A photograph's button says what is on it; Gradio's says "Thumbnail 1 of 4". */
function samples() {
  for (const button of document.querySelectorAll('#vitviz-samples .thumbnail-item')) {
    const name = button.querySelector('.caption-label')?.textContent.trim();
    if (name && button.getAttribute('aria-label') !== name) button.setAttribute('aria-label', name);
  }
}

/** A fold that scrolls can be scrolled from the keyboard: what is opened by a click becomes a stop of Tab. */
function folds() {
  document.addEventListener('click', (event) => {
    if (!event.target.closest?.('.vitviz-fold')) return;
    for (const node of document.querySelectorAll('.vitviz-fold [data-testid=accordion-content]')) node.tabIndex = 0;
  });
}

export function access() {
  folds();
  const skip = el('a', { class: 'vv-skip', href: '#vitviz-tabs', text: t('Skip to the views'), onclick: (event) => {
    event.preventDefault();
    document.querySelector('#vitviz-tabs [role=tab][aria-selected=true]')?.focus();
  } });
  document.querySelector('.gradio-container')?.prepend(skip);
  document.addEventListener('focusin', (event) => { // what is typed replaces the name that stands there
    if (event.target.matches?.('#vitviz-left input[role=listbox], #vitviz-left .wrap input')) event.target.select?.();
  });
  const rove = tabs(), tidy = () => { rove(); samples(); };
  const options = { subtree: true, childList: true, attributes: true, attributeFilter: ['aria-selected', 'aria-label'] };
  for (const id of ['vitviz-tabs', 'vitviz-samples']) {
    const node = document.getElementById(id);
    if (node) new MutationObserver(tidy).observe(id === 'vitviz-tabs' ? node.querySelector('.tab-wrapper') || node : node, options);
  }
  tidy();
}
