// A view as a page of its own, such as a notebook's output cell, with all its data embedded.

import { el } from './elements.js';
import { t } from './i18n.js';
import { mount } from './mount.js';
import { spoken } from './settings.js';

const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

/** Serves the canvas's requests from `parts`: address -> {data, type, shape, dtype} or a refusal. */
function answering(parts) {
  const refusal = (told) => new Response(JSON.stringify(told), { status: 404 });
  return async (url) => {
    const [path, query] = String(url).split('gradio_api/vitviz/')[1].split('?');
    const asked = [...new URLSearchParams(query)].map((pair) => pair.join('=')).join('&');
    const found = parts[`${path}?${asked}`];
    if (!found)
      return refusal({
        text: t('This cell has no data for this setting. Run vitviz.show again with the setting.'),
      });
    if (found.said) return refusal(found.said);
    const described = { 'Content-Type': found.type, 'X-Shape': found.shape, 'X-Dtype': found.dtype };
    return new Response(bytesOf(found.data), { headers: described });
  };
}

/** True if the surroundings of the frame are dark, that is, if their text is light; works in any notebook. */
function dark() {
  try {
    const around = /** @type {Element} */ (window.frameElement); // null fails in a page of its own
    const [r, g, b] = (getComputedStyle(around).color.match(/[\d.]+/g) ?? []).map(Number);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 128;
  } catch {
    return matchMedia('(prefers-color-scheme: dark)').matches;
  }
}

function themed() {
  const html = document.documentElement;
  const now = dark();
  if (html.classList.contains('dark') !== now) html.classList.toggle('dark', now);
}

/** Fits the frame's height to its content, and its theme to the surroundings. */
function framed() {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', themed);
  try {
    const { parent } = window;
    const frame = /** @type {HTMLElement} */ (window.frameElement);
    const watcher = new MutationObserver(themed);
    for (const node of [parent.document.documentElement, parent.document.body])
      watcher.observe(node, { attributes: true });
    new ResizeObserver(() => {
      frame.style.height = `${document.documentElement.offsetHeight + 4}px`;
    }).observe(document.documentElement);
  } catch {
    // top-level page, or a parent of another origin: the frame scrolls
  }
}

/** `value` is the component's value; `lead`, `fixed` (names of settings) and `parts` come with it. */
export default function cell({ value, lead, fixed, parts }, spec) {
  window.fetch = answering(parts);
  // a frame that fits its content has no height of its own
  Object.defineProperty(window, 'innerHeight', { value: 900 });
  themed();
  framed();
  const told = value.controls.filter(({ name, label }) => label && fixed.includes(name));
  const settings = told.map((one) => `${t(one.label)}: ${spoken(one, one.default, value)}`).join(' · ');
  const root = el('div', { class: 'vv', 'data-view': value.view });
  const drawn = el('div', {}, root);
  document.body.append(
    el('h1', { text: `${t(value.title)} · ${value.checkpoint}` }),
    el('p', { text: lead.map((one) => t(one)).join(' ') }),
    ...(settings ? [el('p', { text: t('Fixed in this cell: {settings}.', { settings }) })] : []),
    drawn,
  );
  // controls without a label have no field
  const shown = value.controls.map((one) => (fixed.includes(one.name) ? { ...one, label: '' } : one));
  const quiet = () => {};
  mount(drawn, { value: { ...value, controls: shown } }, quiet, quiet, spec);
}
