// The model's prediction, and the cost of computing it.

import { address } from '../../frontend/data.js';
import { button, el, fold, marked, seek, origin as target } from '../../frontend/elements.js';
import { listen, send } from '../../frontend/events.js';
import { t } from '../../frontend/i18n.js';
import { fixed, scored } from '../../frontend/numbers.js';
import { awaiting } from '../../frontend/progress.js';
import { open as openView } from '../../frontend/view_state.js';
import { modelCheck } from './check.js';

const PAUSE = 2000; // ms before an unanswered request is repeated
const LONGEST = 30000;
const MOST = 1000; // listed classes

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-facts');

  const main = !root.closest('#vitviz-second-facts');
  let asked = []; // classes that a view refers to: one, or one compared with another
  /** @type {any} */
  let origin = null; // the prediction for this image from which the timeline's slider was moved
  /** @type {any} */
  let live = null; // result of a camera's frame
  const given = () => live || props.value;

  /** One class: its probability as a bar, over the previous one in a paler colour. */
  function bar([label, share], before) {
    const was = before?.find(([name]) => name === label)?.[1];
    const { head_type } = given();
    const part = (name, size) => el('span', { class: name, style: `width:${100 * size}%` });
    const [earlier, ghost] =
      was === undefined
        ? []
        : [
            el('span', { class: 'vv-before', text: `${scored(was, head_type)} → ` }),
            part('vv-answer-ghost', was),
          ];
    const bars = el('span', { class: 'vv-answer-track' }, ghost, part('vv-answer-bar', share));
    return el(
      'li',
      {},
      el('span', { class: 'vv-answer-label', text: t(label), title: label }),
      el('span', { class: 'vv-answer-number' }, earlier, scored(share, head_type)),
      head_type === 'value' ? null : bars, // values of a regression head have no bar
    );
  }

  /**
   * The prediction before something was removed, or before the timeline's slider moved; otherwise null.
   * Predictions of two models or two images are not compared.
   */
  function earlier(value) {
    if (value.before || live) return value.before;
    const { scene, moved, checkpoint, top, head_type } = value;
    if (!moved || origin?.scene !== scene || origin.checkpoint === checkpoint)
      origin = { scene, checkpoint, top, head_type };
    return origin.checkpoint === checkpoint || origin.head_type !== head_type ? null : origin.top;
  }

  /** The logit difference between two classes, before and now. */
  function margin(top, before) {
    // exact for softmax too: the normalising constant cancels
    const { head_type } = given();
    const logit = (p) => (head_type === 'value' ? p : Math.log(head_type === 'sigmoid' ? p / (1 - p) : p));
    const ahead = (list) => {
      const [one, other] = asked.map((name) => list?.find(([label]) => label === name)?.[1]);
      const known = [one, other].every((p) => p !== undefined && Number.isFinite(logit(p)));
      return known ? fixed(logit(one) - logit(other), 2) : null;
    };
    const [was, now] = [ahead(before), ahead(top)];
    const values = { one: asked[0], other: asked[1], margin: was && now ? `${was} → ${now}` : now };
    return now && asked[1] ? t('{one} rather than {other}: {margin}', values) : '';
  }

  /** Restores all removed parts, or the previous training snapshot. */
  function undo() {
    if (props.value.before) send('reset-edits');
    else send('show-snapshot', origin.checkpoint);
  }

  /** The most likely classes and the classes that views refer to, with their previous values. */
  function told(value) {
    const before = earlier(value);
    const most = value.score ? 8 : 3; // visitors write few sentences
    const shown = value.top.filter(([label], i) => i < most || (main && asked.includes(label)));
    const back = button(t('Reset'), undo, { class: 'vv-undo' });
    back.classList.toggle('vv-unseen', !before || !main);
    const bars = shown.map((one) => bar(one, before));
    return [
      el('ol', { class: 'vv-answers', 'aria-label': t('Likeliest classes') }, ...bars),
      main && el('p', { class: 'vv-small vv-margin' }, margin(value.top, before), back),
    ].filter(Boolean);
  }

  /** Says whether the prediction for a sample is right; explains a wrong one. */
  function truth({ said, wrong, target }) {
    const why = button(t('Why?'), () => openView('evidence', { target, show: 'account', method: 'ledger' }), {
      class: 'vv-why',
    });
    return el('p', { class: 'vv-small vv-truth' }, t(said), ' ', wrong ? why : null);
  }

  /** The classes by name, filtered by what is typed; fetched when the list is opened. */
  function classList() {
    const [names, summary] = [el('ul'), el('summary')];
    const find = el('input', { type: 'search', placeholder: t('Find a class'), oninput: filter });
    const node = el('details', { class: 'vv-classes', ontoggle: fetched }, summary, find, names);
    find.setAttribute('aria-label', t('Find a class'));
    let [of, labels] = ['', []];

    function filter() {
      const text = find.value.trim().toLowerCase();
      const fits = (label) => [label, t(label)].some((one) => one.toLowerCase().includes(text));
      const found = labels.filter(fits).slice(0, MOST);
      const more = found.length === MOST && labels.length > MOST ? [el('li', { text: '…' })] : [];
      names.replaceChildren(...found.map((label) => el('li', { text: t(label) })), ...more);
    }

    async function fetched() {
      const { key, checkpoint } = props.value;
      if (!node.open || of === checkpoint) return;
      const response = await fetch(address(`${key}/labels`));
      if (!response.ok || checkpoint !== props.value.checkpoint) return;
      [of, labels] = [checkpoint, await response.json()];
      filter();
    }

    /** Shows how many classes there are, and how many validation images this checkpoint gets right. */
    function update() {
      const { count, right } = props.value;
      node.hidden = !main || !count;
      const values = { count: (count ?? 0).toLocaleString('en'), right: fixed(100 * (right ?? 0), 1) };
      summary.textContent =
        right == null
          ? t('{count} classes', values)
          : t('{count} classes, {right} % of validation images right', values);
      fetched();
    }
    return { node, update };
  }

  const classes = classList();
  const check = main ? modelCheck() : null;
  // reused, so that they stay open or closed
  const [details, summary] = [el('details', { class: 'vv-cost' }), el('summary')];
  const unfolded = (open) => marked(seek('#vitviz-page'), 'unfolded', open);
  const other = main ? [fold(t('Change'), unfolded)] : []; // image and checkpoint
  document.addEventListener('click', (event) => {
    const [change] = other;
    if (!root.isConnected || change?.getAttribute('aria-expanded') !== 'true') return;
    if (target(event).closest?.('#vitviz-tabs [role=tab], #vitviz-groups')) change.click();
  });
  /** @type {any} */
  let wait = null;
  let pause = PAUSE;

  function show() {
    const value = given();
    pause = PAUSE;
    root.hidden = !value?.checkpoint;
    wait?.end();
    wait = value?.awaited ? awaiting(value.awaited) : null;
    if (root.hidden) return;
    marked(document.documentElement, 'opened', true);
    if (value.asks) trigger('computed', {}); // requests the rest of the page
    const took = { milliseconds: value.milliseconds, device: value.device };
    const cost = value.first
      ? t('{milliseconds} ms on {device} (first pass)', took)
      : t('{milliseconds} ms on {device}', took);
    const title = main ? t('Prediction') : `${t('Prediction')} · ${value.checkpoint}`;
    if (wait) return root.replaceChildren(el('h2', { text: title }), wait.node, ...other);
    const none = t('This checkpoint has no classifier, so there is no prediction.');
    const answer = value.top.length ? told(value) : [el('p', { text: none })];
    const notes = value.notes.map((note) => el('p', { class: 'vv-small', text: t(note) }));
    const shape = ([name, size]) => [el('dt', { text: t(name) }), el('dd', { text: t(size) })];
    const folded = el('div', {}, ...notes, el('dl', {}, ...value.shapes.flatMap(shape)));
    summary.textContent = cost;
    if (!folded.isEqualNode(details.children[1]))
      details.replaceChildren(summary, folded, check?.button ?? '');
    const why = value.truth ? [truth(value.truth)] : [];
    // left in place: inserted again, all their contents would be restyled at every frame
    if (!root.contains(details)) root.replaceChildren(classes.node, details, check?.offer ?? '');
    while (root.firstChild !== classes.node) root.firstChild.remove();
    classes.node.before(el('h2', { text: title }), ...answer, ...other, ...why);
    classes.update();
    check?.update(props.value);
    root.dataset.checkpoint = value.checkpoint;
  }

  // A full queue refuses requests, so a pending request is repeated at growing intervals.
  listen('unanswered', () => {
    setTimeout(() => props.value?.asks && root.isConnected && trigger('computed', {}), pause);
    pause = Math.min(2 * pause, LONGEST);
  });
  listen('live-frame', (told) => {
    live = told?.answers[main ? 0 : 1];
    if (root.isConnected && (live?.checkpoint || !told)) show();
  });
  listen('explained-classes', (names) => {
    if (!main || String(names) === String(asked)) return;
    asked = names;
    if (given()?.top && !wait) show();
  });
  watch('value', show);
  show();
}
