// The model check: a button beside the prediction, and a dialog in which findings appear as they come. The
// cheap checks run once per checkpoint, after the figures; a serious finding is then shown in one line.

import { aborted, address, answers, sentenceOf } from '../../frontend/data.js';
import { button, div, el, running, say, seek } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { number } from '../../frontend/numbers.js';
import { open as openView, settled } from '../../frontend/view_state.js';

const PAUSE = 1500; // ms between the figures and the cheap checks

const kinds = () => ({ serious: t('Serious'), note: t('Note'), number: t('Number') });
const groups = () => ({
  weights: t('weights'),
  input: t('input'),
  head: t('classifier'),
  attention: t('attention'),
  maps: t('maps'),
  numbers: t('computation'),
});

/** The address of a check or a file, with the image set that is chosen on the page. */
function place(key, name, more = {}) {
  const set = seek('.vv-set')?.dataset.set ?? '';
  return `${key}/check/${name}?${new URLSearchParams({ set, ...more })}`;
}

/** Icon and word of a severity. */
const kind = (severity, text) => el('span', { class: 'vv-check-kind', 'data-kind': severity, text });

/** The threshold of a finding and its source, after the number. */
function measured({ number: value, threshold, source }) {
  if (value === null) return '';
  const values = { number: number(value), threshold: threshold === null ? '' : number(threshold), source };
  return threshold === null
    ? t('Measured: {number}', values)
    : t('Measured: {number}; threshold: {threshold} ({source})', values);
}

/** The place of a verdict: serious ones first, in the order of the check; of the input's, by gain. */
const rank = ({ severity, group, number: value }) =>
  1000 * Number(severity === 'note') +
  10 * Object.keys(groups()).indexOf(group) -
  (group === 'input' ? (value ?? 0) : 0);

/** One finding: severity, sentence, number and threshold, what to do, and the view that shows it. */
function item(finding, close) {
  const { severity, group, sentence, advice, view } = finding;
  const tab = view && seek(`#vitviz-tab-${view}-button`)?.textContent.trim();
  const show = () => {
    close();
    openView(view, {});
  };
  return el(
    'li',
    { 'data-severity': severity, 'data-name': finding.name },
    kind(severity, [kinds()[severity], groups()[group]].filter(Boolean).join(' · ')),
    el('p', { text: t(sentence) }),
    el('p', { class: 'vv-small', text: measured(finding) }),
    severity !== 'number' && el('p', { text: t(advice) }),
    tab && button(t('Show in {view}', { view: tab }), show, { class: 'vv-edit-all' }),
  );
}

/** Opens the dialog. `state` holds the findings so far and the number of the next check. */
function checking(key, checkpoint, state) {
  /** @type {AbortController | null} */
  let life = null; // of the running request
  const lists = {
    verdicts: el('ul', { class: 'vv-check-list' }),
    numbers: el('ul', { class: 'vv-check-list' }),
  };
  const summary = el('summary');
  const details = el('details', { hidden: true }, summary, lists.numbers);
  const basis = el('p', { class: 'vv-small' });
  const far = running(t('Progress of the model check'), () => (life ? life.abort() : run()));
  const file = (ending) =>
    el('a', { class: 'vv-check-file', download: '', href: address(place(key, `report.${ending}`)) });
  const files = ['csv', 'html'].map((ending) =>
    Object.assign(file(ending), { textContent: ending.toUpperCase() }),
  );
  const close = button(t('Close'), () => node.close());
  const title = t('Model check: {checkpoint}', { checkpoint });
  const node = el(
    'dialog',
    { class: 'vv vv-dialog vv-check-dialog', 'aria-label': title, 'data-export': 'no' },
    el('p', { class: 'vv-h', text: title }),
    basis,
    far.node,
    lists.verdicts,
    details,
    div('vv-buttons', ...files, close),
  );

  function add(finding) {
    const made = item(finding, () => node.close());
    made.dataset.rank = String(rank(finding));
    if (finding.severity === 'number') lists.numbers.append(made);
    else {
      const others = [...lists.verdicts.children].map((row) => /** @type {HTMLElement} */ (row));
      const next = others.find((row) => Number(row.dataset.rank) > rank(finding));
      lists.verdicts.insertBefore(made, next ?? null);
    }
  }

  function show(refusal = '') {
    const count = (severity) => state.findings.filter((one) => one.severity === severity).length;
    const [serious, notes, numbers] = ['serious', 'note', 'number'].map(count);
    const whole = state.next === null;
    const told = t('Serious findings: {serious}, notes: {notes}', { serious, notes });
    const text = refusal || (state.findings.length || whole ? told : t('Starting …'));
    far.show({ on: Boolean(life), whole, share: state.share, start: t('Start'), text });
    summary.textContent = t('Numbers without a verdict: {count}', { count: numbers });
    details.hidden = !numbers;
    for (const one of files) one.hidden = !state.findings.length;
    const images = t('Images checked: {count}.', { count: state.images });
    const limits = t('A check without findings does not prove that a model is right.');
    basis.textContent = [state.images ? images : '', limits].filter(Boolean).join(' ');
  }

  async function run() {
    const own = new AbortController();
    life = own;
    let refusal = '';
    try {
      while (state.next !== null && !own.signal.aborted) {
        show();
        const told = await answers(place(key, state.next), own.signal);
        Object.assign(state, { next: told.next, images: told.images, share: told.share });
        state.findings.push(...told.findings);
        told.findings.forEach(add);
      }
    } catch (problem) {
      if (!aborted(problem)) refusal = t(sentenceOf(problem));
    }
    life = null;
    show(refusal);
  }

  node.addEventListener('close', () => {
    life?.abort();
    node.remove();
  });
  state.findings.forEach(add);
  (seek('.gradio-container') ?? document.body).append(node);
  node.showModal();
  show();
  if (!state.findings.length) run();
}

/** The button, and the line that offers a check after a serious finding; `update` takes the facts. */
export function modelCheck() {
  const states = {}; // by checkpoint and image set
  const offers = {}; // sentence of the first serious finding, by checkpoint; '' if there is none
  const opened = new Set(); // checkpoints whose dialog was opened
  let now = /** @type {any} */ ({});
  const said = el('span');
  const open = () => {
    const name = `${now.checkpoint}/${place('', '')}`;
    states[name] ??= { findings: [], next: 0, images: 0, share: 0 };
    opened.add(now.checkpoint);
    show();
    checking(now.key, now.checkpoint, states[name]);
  };
  const opening = () => button(t('Check this model'), open, { class: 'vv-small vv-edit-all' });
  const shown = { class: 'vv-small vv-check-offer', hidden: true };
  const offer = el('div', shown, el('p', {}, kind('serious', t('Serious')), said), opening());

  function show() {
    const sentence = opened.has(now.checkpoint) ? '' : offers[now.checkpoint];
    offer.hidden = !sentence;
    say(said, sentence ? t(sentence) : '');
  }

  /** Runs the cheap checks until one is serious. */
  async function glance({ key, checkpoint }) {
    offers[checkpoint] = '';
    await settled(checkpoint);
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    let next = now.checkpoint === checkpoint ? 0 : null;
    while (next !== null) {
      const told = await answers(place(key, next, { quick: 1 })).catch(() => null);
      const serious = told?.findings.find((one) => one.severity === 'serious');
      offers[checkpoint] = serious?.sentence ?? '';
      next = serious || !told ? null : told.next;
    }
    show();
  }

  function update(value) {
    now = value;
    if (!value.shipped && !(value.checkpoint in offers)) glance(value);
    show();
  }
  return { button: opening(), offer, update };
}
