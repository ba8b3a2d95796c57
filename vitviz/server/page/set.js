// The image set that all averaged views share: shown below the views, with a prediction for each image.
// A survey's progress is shown beside its button.

import { address } from '../../frontend/data.js';
import { button, el, running, say, seek, selection, whenChanged } from '../../frontend/elements.js';
import { listen } from '../../frontend/events.js';
import { t } from '../../frontend/i18n.js';
import { number } from '../../frontend/numbers.js';

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-set');
  const tabs = document.querySelector('#vitviz-tabs');
  let on = ''; // the view being surveyed
  let asked = ''; // set and checkpoint whose predictions were requested
  const ways = {}; // survey option by view

  const fold = button('', () => unfold(body.hidden), { class: 'vv-set-fold' });
  const choose = button('', () => input()?.click(), { class: 'vv-set-choose' });
  const samples = button('', () => trigger('samples', {}));
  const way = el('span', { class: 'vv-set-way' });
  const far = running(t('Progress over the set'), () => toggle());
  const alone = () => trigger('single', { view: view() });
  const single = button(t('Back to one image'), alone, { class: 'vv-set-single' });
  const seen = el('ul', { class: 'vv-set-pictures', 'aria-label': t('Image set') });
  const rest = el('p', { class: 'vv-small' });
  const told = el('p', { class: 'vv-small vv-set-told', role: 'status' });
  const row = el('div', { class: 'vv-set-row' }, choose, samples, way, far.go, single, far.bar, far.said);
  const body = el('div', { class: 'vv-set-body', hidden: true }, row, told, seen, rest);

  const input = () => seek('#vitviz-set-files input[type=file]');
  const view = () =>
    (tabs?.querySelector('[role=tab][aria-selected=true]')?.id ?? '').replace(/^vitviz-tab-|-button$/g, '');

  function unfold(open) {
    body.hidden = !open;
    fold.setAttribute('aria-expanded', String(open));
    if (open) ask();
  }

  function toggle() {
    if (on) {
      on = '';
      trigger('stop', {});
    } else {
      on = view();
      trigger('survey', { view: on, way: ways[on] ?? '' });
    }
    show();
  }

  /** Requests the predictions once, when the images are visible and nothing else is running. */
  function ask() {
    const { set, answers = [], by } = props.value || {};
    const question = `${set}/${by}`;
    if (!set || on || body.hidden || asked === question || !answers.includes(null)) return;
    asked = question;
    trigger('answer', {});
  }

  /** One image, cut from the thumbnail strip, and its prediction. */
  function picture(answer, i) {
    const mark = el('span', { class: 'vv-set-picture' });
    mark.style.background = `url("${address(`${props.value.set}/picture/thumbnails`)}") ${-56 * i}px 0`;
    const [name, score, headType] = answer ?? [];
    const told = headType === 'value' ? number(score) : `${(100 * score).toFixed(0)}\u00a0%`;
    const text = name ? `${t(name)} ${told}` : answer ? '–' : '…';
    return el('li', {}, mark, el('span', { text }));
  }

  function choices(of) {
    if (!of) return [];
    const [label, options, usual] = of;
    const name = view();
    const texts = options.map(([value, text]) => [value, t(text)]);
    const made = selection({ onchange: () => (ways[name] = made.value) }, texts, ways[name] ?? usual);
    return [el('label', {}, el('span', { text: t(label) }), made)];
  }

  function show() {
    const { set, count, own, seen: most, answers = [], over = {}, done, told: said } = props.value || {};
    const name = view();
    root.dataset.set = set ?? ''; // read by the state of the browser's history
    root.hidden = !(props.value?.ways && name in props.value.ways);
    if (root.hidden) return;
    const looked = over[name];
    const of = own ? t('{count} uploaded', { count }) : t('{count} crops of the samples', { count });
    const alone = props.value.never_of_one.includes(name)
      ? t('this figure uses the samples')
      : t('this figure shows one image');
    const mean = looked ? t('this figure uses {count} of them', { count: looked }) : alone;
    fold.textContent = [t('Image set'), count && of, mean].filter(Boolean).join(' · ');
    choose.textContent = count ? t('Other images …') : t('Choose images …');
    samples.textContent = t('Use the samples');
    samples.hidden = Boolean(count) && !own;
    if (way.dataset.view !== name) way.replaceChildren(...choices(props.value.ways[name]));
    way.dataset.view = name;
    const [slug, now, all, kind] = done ?? [];
    const values = { done: now, count: all };
    const words = kind
      ? t('{done} of {count} training steps', values)
      : t('{done} of {count} images', values);
    const mine = slug === on;
    const title = document.querySelector(`#vitviz-tab-${on}-button`)?.textContent.trim();
    const text = on ? `${title}: ${mine ? words : t('processing the first images …')}` : '';
    far.show({ on, whole: false, share: on && mine ? now / all : 0, start: t('Average'), text });
    far.go.disabled = !count && !on;
    single.hidden = !looked;
    say(told, said?.text ? t(said) : '');
    seen.replaceChildren(...answers.map(picture));
    seen.hidden = !answers.length;
    say(rest, count > most ? t('and {count} more', { count: count - most }) : '');
    if (set) ask();
  }

  root.removeAttribute('role');
  root.replaceChildren(fold, body);
  unfold(false);
  listen('answered', (request) => {
    if (request === 'set.survey') on = '';
    if (request.startsWith('set.')) show();
  });
  document.addEventListener('change', (event) => {
    if (event.target !== input()) return;
    say(told, t('Uploading images …'));
  });
  if (tabs) whenChanged(tabs, ['aria-selected'], show);
  watch('value', () => {
    const { done, predicting } = props.value ?? {};
    if (!done && !predicting) on = ''; // another choice has ended the survey
    show();
  });
  show();
}
