// The drawing board over the photograph: a stroke is words, which Python paints; what is drawn here while a
// finger, pen or mouse is down only says where.

import { picture } from '../../canvas/data.js';
import { button, div, el, fit, selection, span, typing } from '../../canvas/elements.js';
import { percent } from '../../canvas/numbers.js';
import { t } from '../../canvas/words.js';
import { questions } from './questions.js';

const STEPS = 100; // that can be undone
const LONGEST = 120; // places of one path
const TOOLS = ['brush', 'erase', 'move', 'copy'];
const TITLES = () => [t('Brush'), t('Eraser'), t('Move'), t('Copy')];
const INKS = () => [
  ['colour', t('a colour')],
  ['mean', t('the mean colour')],
  ['blur', t('blur')],
  ['noise', t('noise')],
];
const WHOLES = () => [
  ['brightness', t('Brightness'), 100], // as far to both sides
  ['contrast', t('Contrast'), 100],
  ['hue', t('Hue'), 180],
  ['rotate', t('Rotation'), 180],
];
const list = (text) => text.split(' ').filter(Boolean);

/**
 * What is painted over the photograph: `open` shows the board, `paint` asks for other strokes.
 * @param {any} props of the part whose value says what is painted
 * @param {(name: string, data: any) => void} trigger its own
 */
export function board(props, trigger) {
  const question = questions(trigger, 'retouch');
  let tool = 'brush';
  let of = ''; // the photograph's key
  let wanted = ''; // the strokes that were asked for last
  let [past, future] = [[], []];
  let drafts = []; // paths whose strokes are still to be painted
  /** @type {any} */
  let down = null; // what is under way: a path, or a rectangle from its corner, or one that is moved
  /** @type {any} */
  let rect = null; // left, top, width, height
  let original = false; // as long as it is shown
  /** @type {any} */
  let pictures = {};
  let scale = 1;

  const canvas = el('canvas', { tabindex: 0, role: 'img', 'aria-label': t('The picture to be painted') });
  const plot = div('vv-board-plot', canvas);
  const answers = el('ol', { class: 'vv-board-answers', 'aria-label': t('Likeliest classes') });
  const tools = TITLES().map((text, i) => button(text, () => take(TOOLS[i])));
  const ink = selection({ 'aria-label': t('It paints'), onchange: () => take('brush') }, INKS(), 'mean');
  const colour = el('input', { type: 'color', value: '#ff8800', 'aria-label': t('The colour') });
  const wideness = { type: 'range', min: 1, max: 100, value: 20, 'aria-label': t('How wide it is') };
  const width = el('input', wideness);
  const labelled = (text, input) => el('label', {}, text, input);
  const sliders = WHOLES().map(([name, text, most]) => {
    const onchange = ({ target }) => paint(changed(name, Number(target.value)));
    return el('input', { type: 'range', min: -most, max: most, 'aria-label': text, onchange, name });
  });
  const undo = button('↶', () => step(past, future), { 'aria-label': t('Undo'), title: t('Undo') });
  const redo = button('↷', () => step(future, past), { 'aria-label': t('Redo'), title: t('Redo') });
  const first = button(t('Original'), null, { title: t('Shows it while this, or the key O, is held') });
  const back = button(t('As it was'), () => paint(''));
  const done = button(t('Done'), () => root.hidePopover());
  const root = el(
    'div',
    { class: 'vv vv-board', popover: 'manual', role: 'dialog', 'aria-label': t('Edit the picture') },
    plot,
    answers,
    div('vv-board-row', ...tools),
    div('vv-board-row', span(t('It paints')), ink, colour),
    div(
      'vv-board-ranges',
      labelled(t('How wide it is'), width),
      ...WHOLES().map(([, text], i) => labelled(text, sliders[i])),
    ),
    div('vv-board-row', undo, redo, first, back, done),
  );

  /** The strokes with another value of what goes over the whole picture, in its place or as the last. */
  function changed(name, value) {
    const each = list(wanted);
    const at = each.findIndex((one) => one.startsWith(`${name}_`));
    each.splice(at < 0 ? each.length : at, at < 0 ? 0 : 1, ...(value ? [`${name}_${value}`] : []));
    return each.join(' ');
  }

  function paint(strokes) {
    if (strokes === wanted) return;
    past = [...past, wanted].slice(-STEPS);
    future = [];
    ask(strokes);
  }

  function ask(strokes) {
    wanted = strokes;
    question.ask({ strokes });
    furnish();
  }

  function step(from, to) {
    if (!from.length) return;
    to.push(wanted);
    rect = null;
    ask(from.pop());
  }

  function take(name) {
    [tool, rect] = [name, null];
    furnish();
    draw();
  }

  /** What the controls say of the strokes. */
  function furnish() {
    tools.forEach((one, i) => one.setAttribute('aria-pressed', TOOLS[i] === tool));
    colour.disabled = ink.value !== 'colour';
    undo.disabled = !past.length;
    redo.disabled = !future.length;
    back.disabled = first.disabled = !wanted;
    for (const one of sliders) {
      const said = list(wanted).find((stroke) => stroke.startsWith(`${one.name}_`));
      one.value = said ? said.slice(one.name.length + 1) : '0';
    }
  }

  function inkText() {
    if (ink.value === 'colour') return colour.value.slice(1);
    return ink.value === 'noise' ? `noise${list(wanted).length}` : ink.value;
  }

  /** A path in words: its first place, and steps from there on. */
  function path(points) {
    const every = Math.ceil(points.length / LONGEST);
    const kept = points.filter((_, i) => i % every === 0 || i === points.length - 1);
    const steps = kept.map(([x, y], i) => (i ? [x - kept[i - 1][0], y - kept[i - 1][1]] : [x, y]));
    return `${tool === 'brush' ? `brush.${inkText()}` : 'erase'}_${[wide(), ...steps.flat()].join('.')}`;
  }

  /** The brush in pixels of the photograph; the slider counts thousandths of its longer side, times four. */
  const wide = () => Math.max(1, Math.round((Number(width.value) * Math.max(...props.value.size)) / 250));
  const within = (/** @type {any} */ [x, y]) =>
    rect && x >= rect[0] && y >= rect[1] && x < rect[0] + rect[2] && y < rect[1] + rect[3];

  function place(event) {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top].map((length) => Math.round(length / scale));
  }

  canvas.addEventListener('pointerdown', (event) => {
    if (event.button || down || !pictures.upload) return;
    canvas.setPointerCapture(event.pointerId);
    const at = place(event);
    const piece = tool === 'move' || tool === 'copy';
    down = piece ? { from: at, to: at, takes: Boolean(within(at)) } : { points: [at] };
    draw();
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!down) return;
    const at = place(event);
    if (down.from) {
      down.to = at;
      if (!down.takes) rect = between(down.from, at);
    } else {
      const [x, y] = down.points.at(-1);
      if (Math.hypot(at[0] - x, at[1] - y) >= Math.max(1, wide() / 6)) down.points.push(at);
    }
    draw();
  });
  canvas.addEventListener('pointerup', () => {
    const was = down;
    down = null;
    if (was?.points) {
      drafts.push({ points: was.points, erases: tool === 'erase', wide: wide() });
      paint(`${wanted} ${path(was.points)}`.trim());
    } else if (was?.takes) carry(was.to[0] - was.from[0], was.to[1] - was.from[1]);
    draw();
  });
  canvas.addEventListener('pointercancel', () => {
    down = null;
    draw();
  });
  canvas.addEventListener('keydown', (event) => {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!rect || !steps) return;
    event.preventDefault();
    carry(...steps);
  });

  /** The corners of a rectangle, within the photograph. */
  function between(/** @type {any} */ [a, b], /** @type {any} */ [c, d]) {
    const [across, down_] = props.value.size;
    const [left, right] = [Math.min(a, c), Math.max(a, c)].map((x) => Math.min(across, Math.max(0, x)));
    const [top, bottom] = [Math.min(b, d), Math.max(b, d)].map((y) => Math.min(down_, Math.max(0, y)));
    return right > left && bottom > top ? [left, top, right - left, bottom - top] : null;
  }

  function carry(across, along) {
    if (!across && !along) return;
    const stroke = `${tool}_${[...rect, across, along].join('.')}`;
    rect = [rect[0] + across, rect[1] + along, rect[2], rect[3]];
    paint(`${wanted} ${stroke}`.trim());
    draw();
  }

  /** The photograph as it is now, or as it was, and over it what is under way. */
  function draw() {
    const shown = (original && pictures.original) || pictures.upload;
    if (!shown || !plot.clientWidth) return;
    const [w, h] = props.value.size;
    scale = Math.min(plot.clientWidth / w, plot.clientHeight / h);
    const context = fit(canvas, w * scale, h * scale, window.devicePixelRatio || 1);
    context.scale(scale, scale);
    context.drawImage(shown, 0, 0, w, h);
    if (original) return;
    const now = down?.points ? [{ points: down.points, erases: tool === 'erase', wide: wide() }] : [];
    for (const one of [...drafts, ...now]) {
      const strokeStyle = one.erases ? 'rgb(255 255 255 / .5)' : 'rgb(127 127 127 / .65)';
      Object.assign(context, { strokeStyle, lineWidth: one.wide, lineCap: 'round', lineJoin: 'round' });
      context.beginPath();
      one.points.forEach(([x, y]) => context.lineTo(x, y));
      context.lineTo(...one.points.at(-1));
      context.stroke();
    }
    if (!rect) return;
    const [across, along] = down?.takes ? [down.to[0] - down.from[0], down.to[1] - down.from[1]] : [0, 0];
    if (across || along) {
      const [x, y, broad, tall] = rect.map((length) => (length * shown.width) / w);
      context.drawImage(shown, x, y, broad, tall, rect[0] + across, rect[1] + along, rect[2], rect[3]);
    }
    // seen on any ground
    Object.assign(context, {
      lineWidth: 2 / scale,
      strokeStyle: '#fff',
      globalCompositeOperation: 'difference',
    });
    context.strokeRect(rect[0] + across, rect[1] + along, rect[2], rect[3]);
    context.globalCompositeOperation = 'source-over';
  }

  function answered() {
    const { top, before } = props.value;
    const was = (label) => before?.find(([name]) => name === label)?.[1];
    const line = ([label, share]) => {
      const told = was(label) === undefined ? '' : `${percent(was(label))} → `;
      return el('li', {}, span(t(label)), span(told + percent(share)));
    };
    answers.replaceChildren(...(top || []).map(line));
  }

  /** Takes over what the server says: the answer to a stroke, another photograph, or a step of Back. */
  async function show() {
    const { key, picture: photo, strokes = '' } = props.value || {};
    if (!key) return;
    if (photo !== of)
      [of, wanted, past, future, drafts, rect, pictures] = [photo, strokes, [], [], [], null, {}];
    else if (!question.open() && strokes !== wanted) {
      past = [...past, wanted].slice(-STEPS);
      [wanted, drafts] = [strokes, []];
    }
    furnish();
    answered();
    if (!root.matches(':popover-open')) return;
    const { signal } = new AbortController();
    const asked = ['upload', 'original'].map((one) => picture(`${key}/picture/${one}`, signal));
    const found = await Promise.all(asked).catch(() => []); // the stage says why
    if (props.value.key !== key || !found.length) return;
    pictures = { upload: found[0], original: found[1] };
    if (strokes === wanted) drafts = [];
    draw();
  }

  function hold(on) {
    const shows = on && Boolean(wanted);
    if (shows === original) return;
    original = shows;
    document.dispatchEvent(new CustomEvent('vitviz:original', { detail: shows }));
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
      step(...(shiftKey ? [future, past] : [past, future]));
    } else if (open && key === 'Escape') root.hidePopover();
    else if (key.toLowerCase() === 'o' && !ctrlKey && !metaKey && !event.repeat) hold(true);
  });
  document.addEventListener('keyup', ({ key }) => key.toLowerCase() === 'o' && hold(false));
  window.addEventListener('blur', () => hold(false));
  new ResizeObserver(draw).observe(plot);
  document.addEventListener('vitviz:answered', (/** @type {CustomEvent} */ { detail }) => {
    if (detail !== 'retouch' || question.open() || wanted === props.value.strokes) return;
    [wanted, drafts] = [props.value.strokes, []]; // refused
    past.pop();
    root.hidePopover(); // or it would cover the reason
    furnish();
  });
  return {
    paint,
    show,
    open(from) {
      document.body.append(root);
      root.showPopover();
      root.addEventListener('toggle', ({ newState }) => newState === 'closed' && from.focus(), {
        once: true,
      });
      tools[0].focus({ preventScroll: true });
      show();
    },
  };
}
