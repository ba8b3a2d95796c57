// The header's buttons: copy a link to the current state, and download all as one zip. Updates the address.

import { file, sentenceOf } from '../../frontend/data.js';
import { button, el, seek, whenChanged } from '../../frontend/elements.js';
import { listen } from '../../frontend/events.js';
import { save } from '../../frontend/export.js';
import { t } from '../../frontend/i18n.js';
import { memory, views } from '../../frontend/view_state.js';
import names from '../../frontend/views.js';
import { past } from './navigation_history.js';

const PICTURE = /^[0-9a-f]{40}$/; // an image's key, which is private to this server
const SHORT = 1000; // maximum characters of edits in a link
const OWN = /onto\.[0-9a-f]{40}_/; // edits that paste onto the visitor's own image
const LEAVING = 10000; // ms that a reload may take

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-links');
  const said = el('p', { class: 'vv-small', role: 'status' });
  const field = el('input', {
    type: 'text',
    readonly: true,
    'aria-label': t('Link'),
    onfocus: () => field.select(),
  });
  const bubble = el('div', { class: 'vv-bubble', hidden: true }, said, field);
  const copy = button(t('Copy link'), copied, { class: 'vv-copy' });
  const zip = button(t('Download all'), everything, {
    class: 'vv-everything',
    title: t('Data of all figures, images and settings in one zip'),
  });
  const told = past(moment, () => props.value, trigger);
  /** @type {any} */
  let way = null; // state before a view led to a lesson in another view
  const title = t('Back to the previous view');
  const back = button('', () => told.go(way), { class: 'vv-way', hidden: true, title });
  let touched = false;
  let coming = ''; // the tab that a lesson opens, until it is visible
  let timer = 0;
  let hiding = 0;
  let leaving = -LEAVING; // when the page was last left, possibly only for a download

  function tab() {
    const panels = [...document.querySelectorAll('#vitviz-tabs [role=tabpanel]')];
    return panels.find((panel) => panel.getClientRects().length)?.id.replace('vitviz-tab-', '') || '';
  }

  /** A view's current settings: those of the figure, or those that the view will start with. */
  function settings(slug, second = false) {
    const view = [...views].find(
      ({ name, root, value }) =>
        name === slug && root.isConnected && value.controls && Boolean(value.second) === second,
    );
    const { places, ...kept } = memory[slug] || {};
    return Object.entries(view ? view.settings : kept);
  }

  /** The state as the query of an address; settings at their default are omitted. */
  function query() {
    const { checkpoint, second, size, sample, without, strokes } = props.value;
    const slug = tab();
    const view = [...views].find((one) => one.name === slug && one.value.controls);
    const usual = (name) => view?.value.controls.find((control) => control.name === name)?.default;
    const told = settings(slug).filter(
      ([name, value]) => String(value) !== String(usual(name)) && !PICTURE.test(String(value)),
    );
    return new URLSearchParams([
      ['checkpoint', checkpoint],
      ...(second ? [['second', second]] : []),
      ...(size && size !== 'own' ? [['size', size]] : []),
      ...(sample ? [['sample', sample]] : []),
      ...(without ? [['without', without]] : []),
      ...(sample && strokes && strokes.length <= SHORT && !OWN.test(strokes) ? [['strokes', strokes]] : []),
      ...(names.includes(slug) ? [['tab', slug]] : []),
      ...told,
    ]).toString();
  }

  /**
   * The state for the browser's history: settings of all views, the visitor's own image, and averages too.
   */
  function moment() {
    const { checkpoint, second, size, sample, picture, without, strokes } = props.value;
    if (coming === tab()) coming = '';
    const all = names.map((slug) => [slug, Object.fromEntries(settings(slug).map(asText))]);
    return {
      ...{ checkpoint, second, size, without, strokes, tab: coming || tab(), sample: sample || '' },
      picture: sample ? '' : picture,
      set: seek('.vv-set')?.dataset.set ?? '',
      averages: Object.fromEntries(averaged().map(({ name, key }) => [name, key])),
      settings: Object.fromEntries(all),
    };
  }

  /** Views that show an average over a set. */
  function averaged() {
    const mine = (view) => view.root.isConnected && names.includes(view.name) && !view.value.second;
    return [...views].filter((view) => mine(view) && view.key && view.key === view.value.scene);
  }
  const asText = ([name, value]) => [name, String(value)];

  function write() {
    clearTimeout(timer);
    if (!props.value?.key || !root.isConnected) return;
    // Chromium drops the entry's state if the address changes during a reload
    if (performance.now() < leaving + LEAVING) return later();
    back.hidden = !way || way.tab === tab();
    const url = new URL(window.location.href);
    const staying = [...url.searchParams].filter(
      ([name]) => name.startsWith('__') || name === 'lang' || name === 'present',
    ); // Gradio's theme and a private Space's key; our own `lang` and `present`
    url.search = new URLSearchParams([...staying, ...new URLSearchParams(query())]).toString();
    // before the first action the address stays unchanged
    told.keep(touched ? url : window.location.href, touched);
  }

  /** Stores requested changes at once, before a reload can happen. */
  function arrived() {
    told.answered();
    coming = props.value?.tab || '';
    if (props.value?.key && !told.holds()) write();
    else later();
  }

  function later() {
    // browsers allow a hundred address changes in half a minute
    clearTimeout(timer);
    timer = setTimeout(write, 300);
  }

  function tell(text, link = '') {
    clearTimeout(hiding);
    [said.textContent, bubble.hidden, field.hidden, field.value] = [text, false, !link, link];
    if (link) field.select();
    else hiding = setTimeout(() => (bubble.hidden = true), 6000);
  }

  async function copied() {
    if (!props.value?.key) return;
    const { base, sample, strokes } = props.value;
    const link = `${base || window.location.origin + window.location.pathname}?${query()}`;
    const left =
      !sample || OWN.test(strokes)
        ? t('Your image isn’t included; the link opens with a sample.')
        : strokes?.length > SHORT &&
          t('The edits are too long for a link and aren’t included; “Download all” includes them.');
    const set = averaged().length > 0 && t('The image set isn’t included; the link opens with one image.');
    const own = [left, set].map((sentence) => (sentence ? ` ${sentence}` : '')).join('');
    try {
      await navigator.clipboard.writeText(link);
      tell(t('Link copied.') + own);
    } catch {
      // no permission, or no secure connection
      tell(t('Copy this link:') + own, link);
    }
  }

  async function everything() {
    if (!props.value?.key || zip.disabled) return;
    const asked = names.flatMap((slug) => settings(slug).map(([name, value]) => [`${slug}.${name}`, value]));
    asked.push(['tab', tab()]);
    const { second_key: second } = props.value;
    if (second)
      asked.push(
        ['second', second],
        ...names.flatMap((slug) =>
          settings(slug, true).map(([name, value]) => [`second.${slug}.${name}`, value]),
        ),
      );
    for (const view of averaged()) asked.push([`survey.${view.name}`, view.key]);
    zip.disabled = true;
    tell(t('Preparing the download …'));
    clearTimeout(hiding);
    try {
      const { blob, name } = await file(`${props.value.key}/everything.zip?${new URLSearchParams(asked)}`);
      save(blob, name || 'vitviz.zip');
      tell(t('Saved to your downloads.'));
    } catch (problem) {
      tell(t(sentenceOf(problem)));
    }
    zip.disabled = false;
  }

  root.hidden = false;
  root.replaceChildren(back, copy, zip, bubble);
  root.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') bubble.hidden = true;
  });
  document.addEventListener('pointerdown', (event) => {
    if (!root.contains(event.target)) bubble.hidden = true;
  });
  for (const name of ['pointerdown', 'keydown', 'input', 'change', 'drop'])
    document.addEventListener(name, () => (touched = true), { capture: true, passive: true });
  whenChanged(document.body, ['data-ready', 'aria-selected', 'data-set'], later);
  listen('leave-for-lesson', () => {
    way = moment();
    const from = document.querySelector('#vitviz-tabs [role=tab][aria-selected=true]');
    back.textContent = `← ${from?.textContent}`;
  });
  window.addEventListener('beforeunload', () => (leaving = performance.now()));
  watch('value', arrived);
}
