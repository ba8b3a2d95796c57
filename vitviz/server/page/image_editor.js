// The image editor's dialog. A stroke is a text, which Python paints; the browser's drawing during a gesture
// is only a preview of the path.

import { picture } from '../../frontend/data.js';
import { button, div, el, selection, span, typing } from '../../frontend/elements.js';
import { listen, send } from '../../frontend/events.js';
import { t } from '../../frontend/i18n.js';
import { scored } from '../../frontend/numbers.js';
import { editorCanvas } from './editor_canvas.js';
import { adjust, adjustment, fitted, ground, seed, stroke, transform } from './editor_commands.js';
import { editHistory } from './editor_history.js';
import { editorTools } from './editor_tools.js';
import { questions } from './requests.js';

const TOOLS = ['brush', 'erase', 'move', 'copy'];
const TITLES = () => [t('Brush'), t('Eraser'), t('Move'), t('Copy')];
const INKS = () => [
  ['colour', t('a colour')],
  ['mean', t('the mean colour')],
  ['blur', t('blur')],
  ['noise', t('noise')],
];
const CUTS = () => [
  ['rectangle', t('a rectangle')],
  ['free', t('free hand')],
];
/** @type {() => [string, string, number[]][]} */
const SIDES = () => [
  ['⇆', t('Flip horizontally'), [-1, 1]], // factors of width and height
  ['⇅', t('Flip vertically'), [1, -1]],
  ['−', t('Smaller'), [0.8, 0.8]],
  ['+', t('Larger'), [1.25, 1.25]],
];
/** @type {() => [string, string, number, string][]} */
const WHOLES = () => [
  ['brightness', t('Brightness'), 100, ' %'], // range, in both directions
  ['contrast', t('Contrast'), 100, ' %'],
  ['hue', t('Hue'), 180, '°'],
  ['rotate', t('Rotation'), 180, '°'],
];

/**
 * The image editor: `open` shows the dialog, `paint` requests other edits.
 * @param {any} props of the component whose value holds the edits
 * @param {(name: string, data: any) => void} trigger of the component
 */
export function imageEditor(props, trigger) {
  const question = questions(trigger, 'retouch');
  const history = editHistory((strokes) => {
    question.ask({ strokes });
    furnish();
  });
  let of = ''; // the image's key
  let drafts = []; // paths whose strokes are not yet painted
  let original = false; // while the original is shown
  /** @type {any} */
  let pictures = {}; // edited and original image, with size and edits

  const title = t('Arrow keys move brush or region (Shift: 10 px); Enter starts or ends a stroke');
  const named = { role: 'application', 'aria-label': t('Image to edit') };
  const canvas = el('canvas', { tabindex: 0, ...named, title });
  const plot = div('vv-board-plot', canvas);
  const drawn = editorCanvas(plot, canvas);
  const answers = el('ol', { class: 'vv-board-answers', 'aria-label': t('Likeliest classes') });
  const ink = selection({ 'aria-label': t('Paint'), onchange: () => take('brush') }, INKS(), 'mean');
  const colour = el('input', { type: 'color', value: '#ff8800', 'aria-label': t('Colour') });
  const wideness = { type: 'range', min: 1, max: 100, value: 20, 'aria-label': t('Brush width') };
  const width = el('input', wideness);
  const recut = () => take(tools.name());
  const cut = selection({ 'aria-label': t('Cut out'), onchange: recut }, CUTS(), 'rectangle');
  /** Brush width in pixels of the image; the slider is in units of 1/250 of the longer side. */
  const wide = () => Math.max(1, Math.round((Number(width.value) * Math.max(...props.value.size)) / 250));
  const tools = editorTools({
    canvas,
    place: drawn.place,
    free: () => cut.value === 'free',
    width: wide,
    size: () => pictures.size,
    ready,
    stroke(path) {
      drafts.push(path);
      const kind = path.erases ? 'erase' : `brush.${inkText()}`;
      history.paint(stroke(history.now(), kind, path.wide, path.points));
    },
    carry: (shift) => carry(shift),
    ended: furnish,
    changed: draw,
  });
  const hands = TITLES().map((text, i) => button(text, () => take(TOOLS[i])));
  const sides = SIDES().map(([text, label, by]) =>
    button(text, () => carry([0, 0], by), { 'aria-label': label, title: label }),
  );
  const onto = selection({ 'aria-label': t('Paste onto another image'), onchange: land }, [], '');
  const tells = []; // update the sliders' numbers
  const labelled = (text, input, says) => {
    const told = el('output');
    const tell = () => (told.textContent = says());
    input.addEventListener('input', tell);
    tells.push(tell);
    return el('label', {}, span(text), told, input);
  };
  const sliders = WHOLES().map(([name, text, most]) => {
    const onchange = ({ target }) => history.paint(adjust(history.now(), name, Number(target.value)));
    return el('input', { type: 'range', min: -most, max: most, 'aria-label': text, onchange, name });
  });
  const step = (moves) => () => moves() && deselect();
  const [back, forth] = [step(history.undo), step(history.redo)];
  const undo = button('↶', back, { 'aria-label': t('Undo'), title: t('Undo') });
  const redo = button('↷', forth, { 'aria-label': t('Redo'), title: t('Redo') });
  const first = button(t('Show original'), null, {
    title: t('Hold this button or the O key to show the original'),
  });
  const reset = button(t('Reset'), () => history.paint(''));
  const done = button(t('Done'), () => root.hidePopover());
  const painting = div('vv-board-row', span(t('Paint')), ink, colour);
  const cutting = div('vv-board-row vv-board-cut', cut, ...sides, onto);
  const root = el(
    'div',
    { class: 'vv vv-board', popover: 'manual', role: 'dialog', 'aria-label': t('Edit image') },
    plot,
    answers,
    div('vv-board-row', ...hands),
    painting,
    cutting,
    div(
      'vv-board-ranges',
      labelled(t('Brush width'), width, () => `${wide()} px`),
      ...WHOLES().map(([, text, , unit], i) => labelled(text, sliders[i], () => sliders[i].value + unit)),
    ),
    div('vv-board-row', undo, redo, first, reset, done),
  );

  /** True if the displayed image is the one that the requested edits end on. */
  function ready() {
    return Boolean(pictures.upload) && ground(history.now()) === ground(pictures.strokes ?? '');
  }

  function inkText() {
    if (ink.value === 'colour') return colour.value.slice(1);
    return ink.value === 'noise' ? `noise${seed(history.now())}` : ink.value;
  }

  /** Updates the controls from the edits. */
  function furnish() {
    canvas.setAttribute('aria-busy', String(!ready()));
    const [now, cuts] = [history.now(), tools.cuts()];
    hands.forEach((one, i) => one.setAttribute('aria-pressed', TOOLS[i] === tools.name()));
    [painting.hidden, width.parentElement.hidden, cutting.hidden] = [cuts, cuts, !cuts];
    for (const one of [...sides, onto]) one.disabled = !tools.region();
    colour.disabled = ink.value !== 'colour';
    undo.disabled = !history.undoes();
    redo.disabled = !history.redoes();
    reset.disabled = first.disabled = !now;
    for (const one of sliders) one.value = adjustment(now, one.name);
    for (const tell of tells) tell();
  }

  function changed() {
    furnish();
    draw();
  }

  function deselect() {
    tools.select(null);
    changed();
  }

  function take(name) {
    tools.take(name);
    changed();
  }

  /** Moves the region, or scales its sides about its centre by the factors `by`. */
  function carry(shift, by = [1, 1], kind = tools.name()) {
    const region = tools.region();
    const next = region && transform(history.now(), region, kind, shift, by);
    if (!next) return;
    tools.select(next.region);
    history.paint(next.edits);
    draw();
  }

  /** Pastes the region onto another image, with size and position relative to each image. */
  function land() {
    const [name, , ...size] = props.value.grounds.find(([one]) => one === onto.value);
    const region = tools.region();
    if (!region) return;
    const { shift, by } = fitted(region, pictures.size, size);
    onto.value = '';
    tools.select(region, 'move');
    carry(shift, by, `onto.${name}`);
  }

  /** Draws the edited or original image, and the current gesture over it. */
  function draw() {
    const shown = (original && pictures.original) || pictures.upload;
    if (!shown || !plot.clientWidth || !ready()) return;
    drawn.draw(shown, pictures.size, drafts, original ? null : tools.drawing());
  }

  function answered() {
    const { top, before, head_type } = props.value;
    const was = (label) => before?.find(([name]) => name === label)?.[1];
    const line = ([label, share]) => {
      const told = was(label) === undefined ? '' : `${scored(was(label), head_type)} → `;
      return el('li', {}, span(t(label)), span(told + scored(share, head_type)));
    };
    answers.replaceChildren(...(top || []).map(line));
  }

  /** Applies the server's value: a result, another image, or a step in the browser's history. */
  async function show() {
    const { key, picture: photo, strokes = '', size, grounds } = props.value || {};
    if (!key) return;
    if (photo !== of) {
      [of, drafts, pictures] = [photo, [], {}];
      history.restart(strokes);
      tools.select(null);
    } else if (!question.open() && strokes !== history.now()) {
      history.follow(strokes);
      drafts = [];
    }
    const offered = grounds.map(([value, text]) => el('option', { value, text: t(text) }));
    onto.replaceChildren(el('option', { value: '', text: t('Paste onto …') }), ...offered);
    furnish();
    answered();
    if (!root.matches(':popover-open')) return;
    const { signal } = new AbortController();
    const asked = ['upload', 'original'].map((one) => picture(`${key}/picture/${one}`, signal));
    const found = await Promise.all(asked).catch(() => []); // the stage shows the error
    if (props.value.key !== key || !found.length) return;
    pictures = { upload: found[0], original: found[1], size, strokes };
    if (strokes === history.now()) drafts = [];
    changed();
  }

  function hold(on) {
    const shows = on && Boolean(history.now());
    if (shows === original) return;
    original = shows;
    send('show-original', shows);
    draw();
  }

  first.addEventListener('pointerdown', () => hold(true));
  for (const name of ['pointerup', 'pointerleave', 'pointercancel', 'blur'])
    first.addEventListener(name, () => hold(false));
  document.addEventListener('keydown', (event) => {
    const { key, target, ctrlKey, metaKey, shiftKey } = event;
    if (typing(target) || event.defaultPrevented) return;
    const open = root.matches(':popover-open');
    if (open && (ctrlKey || metaKey) && key.toLowerCase() === 'z') {
      event.preventDefault();
      (shiftKey ? forth : back)();
    } else if (open && key === 'Escape') root.hidePopover();
    else if (key.toLowerCase() === 'o' && !ctrlKey && !metaKey && !event.repeat) hold(true);
  });
  document.addEventListener('keyup', ({ key }) => key.toLowerCase() === 'o' && hold(false));
  window.addEventListener('blur', () => hold(false));
  new ResizeObserver(draw).observe(plot);
  listen('answered', (request) => {
    if (request !== 'retouch' || question.open() || history.now() === props.value.strokes) return;
    history.refuse(props.value.strokes);
    drafts = [];
    tools.select(null);
    root.hidePopover(); // otherwise it would cover the error message
    furnish();
  });
  return {
    paint: history.paint,
    show,
    open(from) {
      document.body.append(root);
      root.showPopover();
      root.addEventListener('toggle', ({ newState }) => newState === 'closed' && from.focus(), {
        once: true,
      });
      hands[0].focus({ preventScroll: true });
      show();
    },
  };
}
