// The image editor: a stroke is a text, which Python paints; the browser's drawing during a gesture is only a
// preview of the path.

import { picture } from '../../frontend/data.js';
import { button, div, el, fit, selection, span, typing } from '../../frontend/elements.js';
import { listen, send } from '../../frontend/events.js';
import { t } from '../../frontend/i18n.js';
import { scored } from '../../frontend/numbers.js';
import { questions } from './requests.js';

const STEPS = 100; // maximum undo steps
const LONGEST = 120; // points of one path
const LARGEST = 4096; // pixels per side of a scaled region
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
const WHOLES = () => [
  ['brightness', t('Brightness'), 100, ' %'], // range, in both directions
  ['contrast', t('Contrast'), 100, ' %'],
  ['hue', t('Hue'), 180, '°'],
  ['rotate', t('Rotation'), 180, '°'],
];
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const list = (text) => text.split(' ').filter(Boolean);
/** Index of the last stroke by one of some tools; -1 for none. */
const last = (each, ...tools) => each.findLastIndex((one) => tools.includes(one.match(/^[a-z]+/)[0]));

/**
 * The image editor: `open` shows the dialog, `paint` requests other edits.
 * @param {any} props of the component whose value holds the edits
 * @param {(name: string, data: any) => void} trigger of the component
 */
export function board(props, trigger) {
  const question = questions(trigger, 'retouch');
  let tool = 'brush';
  let of = ''; // the image's key
  let wanted = ''; // the edits requested last
  let [past, future] = [[], []];
  let drafts = []; // paths whose strokes are not yet painted
  /** @type {any} */
  let down = null; // current gesture: a path, a rectangle from its corner, or a moved region
  /** @type {any} */
  let rect = null; // left, top, width, height
  let outline = []; // in the rectangle, of a region cut free-hand
  let landed = null; // the rectangle while it holds the region pasted onto another image
  /** @type {any} */
  let cursor = null; // keyboard position
  let original = false; // while the original is shown
  /** @type {any} */
  let pictures = {}; // edited and original image, with size and edits
  let scale = 1;

  const title = t('Arrow keys move brush or region (Shift: 10 px); Enter starts or ends a stroke');
  const named = { role: 'application', 'aria-label': t('Image to edit') };
  const canvas = el('canvas', { tabindex: 0, ...named, title });
  const plot = div('vv-board-plot', canvas);
  const answers = el('ol', { class: 'vv-board-answers', 'aria-label': t('Likeliest classes') });
  const tools = TITLES().map((text, i) => button(text, () => take(TOOLS[i])));
  const ink = selection({ 'aria-label': t('Paint'), onchange: () => take('brush') }, INKS(), 'mean');
  const colour = el('input', { type: 'color', value: '#ff8800', 'aria-label': t('Colour') });
  const wideness = { type: 'range', min: 1, max: 100, value: 20, 'aria-label': t('Brush width') };
  const width = el('input', wideness);
  const cut = selection({ 'aria-label': t('Cut out'), onchange: () => take(tool) }, CUTS(), 'rectangle');
  const sides = SIDES().map(([text, label, by]) =>
    button(text, () => carry(0, 0, by), { 'aria-label': label, title: label }),
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
    const onchange = ({ target }) => paint(changed(name, Number(target.value)));
    return el('input', { type: 'range', min: -most, max: most, 'aria-label': text, onchange, name });
  });
  const undo = button('↶', () => step(past, future), { 'aria-label': t('Undo'), title: t('Undo') });
  const redo = button('↷', () => step(future, past), { 'aria-label': t('Redo'), title: t('Redo') });
  const first = button(t('Show original'), null, {
    title: t('Hold this button or the O key to show the original'),
  });
  const back = button(t('Reset'), () => paint(''));
  const done = button(t('Done'), () => root.hidePopover());
  const painting = div('vv-board-row', span(t('Paint')), ink, colour);
  const cutting = div('vv-board-row vv-board-cut', cut, ...sides, onto);
  const root = el(
    'div',
    { class: 'vv vv-board', popover: 'manual', role: 'dialog', 'aria-label': t('Edit image') },
    plot,
    answers,
    div('vv-board-row', ...tools),
    painting,
    cutting,
    div(
      'vv-board-ranges',
      labelled(t('Brush width'), width, () => `${wide()} px`),
      ...WHOLES().map(([, text, , unit], i) => labelled(text, sliders[i], () => sliders[i].value + unit)),
    ),
    div('vv-board-row', undo, redo, first, back, done),
  );

  /** Returns the edits with a new value for a whole-image edit, in its old position or at the end. */
  function changed(name, value) {
    const each = list(wanted);
    const at = said(name);
    each.splice(at < 0 ? each.length : at, at < 0 ? 0 : 1, ...(value ? [`${name}_${value}`] : []));
    return each.join(' ');
  }

  /** Index of a whole-image edit; -1 for none. Edits before the last paste do not count. */
  function said(name) {
    const at = last(list(wanted), name, 'onto');
    return list(wanted)[at]?.startsWith(name) ? at : -1;
  }

  /** True if the displayed image is the one that the requested edits end on. */
  function ready() {
    const [now, then] = [wanted, pictures.strokes ?? ''].map((text) => {
      const each = list(text);
      return each[last(each, 'onto')]?.split('_')[0];
    });
    return pictures.upload && now === then;
  }

  const waits = () => canvas.setAttribute('aria-busy', String(!ready()));

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
    [tool, rect, down] = [name, null, null];
    furnish();
    draw();
  }

  /** Updates the controls from the edits. */
  function furnish() {
    waits();
    tools.forEach((one, i) => one.setAttribute('aria-pressed', TOOLS[i] === tool));
    [painting.hidden, width.parentElement.hidden, cutting.hidden] = [pieces(), pieces(), !pieces()];
    for (const one of [...sides, onto]) one.disabled = !rect;
    colour.disabled = ink.value !== 'colour';
    undo.disabled = !past.length;
    redo.disabled = !future.length;
    back.disabled = first.disabled = !wanted;
    for (const one of sliders) {
      one.value = list(wanted)[said(one.name)]?.split('_')[1] ?? '0';
    }
    for (const tell of tells) tell();
  }

  function inkText() {
    if (ink.value === 'colour') return colour.value.slice(1);
    return ink.value === 'noise' ? `noise${list(wanted).length}` : ink.value;
  }

  const pieces = () => tool === 'move' || tool === 'copy';

  function thinned(points) {
    const every = Math.ceil(points.length / LONGEST);
    return points.filter((_, i) => i % every === 0 || i === points.length - 1);
  }

  /** Encodes a path as its first point and relative steps. */
  const steps = (points) =>
    points.flatMap(([x, y], i) => (i ? [x - points[i - 1][0], y - points[i - 1][1]] : [x, y]));

  /** Brush width in pixels of the image; the slider is in units of 1/250 of the longer side. */
  const wide = () => Math.max(1, Math.round((Number(width.value) * Math.max(...props.value.size)) / 250));
  const within = (/** @type {any} */ [x, y]) =>
    rect && x >= rect[0] && y >= rect[1] && x < rect[0] + rect[2] && y < rect[1] + rect[3];

  function place(event) {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top].map((length) => Math.round(length / scale));
  }

  function begin(at) {
    const path = !pieces() || (cut.value === 'free' && !within(at));
    if (path && pieces()) rect = null;
    down = path ? { points: [at] } : { from: at, to: at, takes: Boolean(within(at)) };
  }

  function go(at) {
    if (down?.points) {
      const [x, y] = down.points.at(-1);
      const least = pieces() ? 2 : Math.max(1, wide() / 6);
      if (Math.hypot(at[0] - x, at[1] - y) >= least) down.points.push(at);
    } else if (down) {
      down.to = at;
      if (!down.takes) [rect, outline] = [between(down.from, at), []];
    }
  }

  function end() {
    const was = down;
    down = null;
    if (was?.takes) carry(was.to[0] - was.from[0], was.to[1] - was.from[1]);
    else if (was?.points && pieces()) enclose(was.points);
    else if (was?.points) {
      drafts.push({ points: was.points, erases: tool === 'erase', wide: wide() });
      const named = tool === 'brush' ? `brush.${inkText()}` : 'erase';
      paint(`${wanted} ${named}_${[wide(), ...steps(thinned(was.points))].join('.')}`.trim());
    }
    furnish();
  }

  canvas.addEventListener('pointerdown', (event) => {
    if (event.button || down || !ready()) return;
    canvas.setPointerCapture(event.pointerId);
    cursor = null;
    begin(place(event));
    draw();
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!down || cursor) return;
    go(place(event));
    draw();
  });
  canvas.addEventListener('pointerup', () => {
    if (!cursor) end();
    draw();
  });
  canvas.addEventListener('pointercancel', () => {
    down = null;
    draw();
  });
  canvas.addEventListener('keydown', (event) => {
    const { key, repeat, shiftKey } = event;
    const [step, sets] = [ARROWS[key], key === 'Enter' || key === ' '];
    if (!ready() || !(step || sets || (key === 'Escape' && down))) return;
    event.preventDefault();
    const { size } = pictures;
    cursor ??= size.map((side) => Math.round(side / 2));
    if (step) {
      if (rect && !down) {
        cursor = [0, 1].map((i) => rect[i] + Math.floor(rect[i + 2] / 2));
        begin(cursor);
      }
      const to = cursor.map((one, i) => one + step[i] * (shiftKey ? 10 : 1));
      cursor = down?.takes ? to : to.map((one, i) => Math.min(size[i], Math.max(0, one)));
      go(cursor);
    } else if (!sets) down = null;
    else if (!repeat) down ? end() : begin(cursor);
    draw();
  });

  /** Cuts a region along a path, which closes itself. */
  function enclose(points) {
    const inside = ([x, y]) => [x, y].map((one, i) => Math.min(pictures.size[i] - 1, Math.max(0, one)));
    outline = thinned(points).map(inside);
    const [left, top] = [0, 1].map((i) => Math.min(...outline.map((one) => one[i])));
    const [right, bottom] = [0, 1].map((i) => Math.max(...outline.map((one) => one[i])));
    rect = outline.length > 2 ? [left, top, right - left + 1, bottom - top + 1] : null;
  }

  /** A rectangle from two corners, clipped to the image. */
  function between(/** @type {any} */ [a, b], /** @type {any} */ [c, d]) {
    const [across, down_] = pictures.size;
    const [left, right] = [Math.min(a, c), Math.max(a, c)].map((x) => Math.min(across, Math.max(0, x)));
    const [top, bottom] = [Math.min(b, d), Math.max(b, d)].map((y) => Math.min(down_, Math.max(0, y)));
    return right > left && bottom > top ? [left, top, right - left, bottom - top] : null;
  }

  /** Pastes the region onto another image, with size and position relative to each image. */
  function land() {
    const [name, , ...size] = props.value.grounds.find(([one]) => one === onto.value);
    const middle = [0, 1].map((i) => rect[i] + rect[i + 2] / 2);
    const shares = size.map((side, i) => side / pictures.size[i]);
    const [across, along] = middle.map((one, i) => Math.round(one * (shares[i] - 1)));
    const by = Math.min(...shares, LARGEST / rect[2], LARGEST / rect[3]);
    [tool, onto.value] = ['move', ''];
    carry(across, along, [by, by], `onto.${name}`);
  }

  /** Moves the region right and down, or scales its sides about its centre by the factors `by`. */
  function carry(across, along, by = [1, 1], named = tool) {
    const lands = named !== tool;
    const again = rect === landed && named === 'move';
    if (!rect || (!lands && !across && !along && by.every((one) => one === 1))) return;
    const [left, top, ...taken] = rect;
    const became = taken.map((side, i) =>
      Math.abs(by[i]) === 1 ? side : Math.min(LARGEST, Math.max(1, Math.round(side * by[i]))),
    );
    const moved = [across, along].map((one, i) => one + Math.round((taken[i] - became[i]) / 2));
    const goal = became.map((side, i) => Math.sign(by[i]) * side);
    const plain = !lands && !outline.length && goal.every((side, i) => side === taken[i]);
    const stroke = [...rect, ...moved, ...(plain ? [] : goal), ...steps(outline)];
    const each = list(wanted);
    if (again) {
      // pasted again; leaves no hole
      const at = last(each, 'onto');
      const [before, numbers] = each[at].split('_');
      const put = numbers.split('.').map(Number);
      moved.forEach((one, i) => (put[4 + i] += one));
      goal.forEach((one, i) => (put[6 + i] = Math.sign(put[6 + i]) * one));
      each[at] = `${before}_${put.join('.')}`;
    } else each.push(`${named}_${stroke.join('.')}`);
    const put = (one, i) => {
      const within = Math.round(((one - rect[i]) * became[i]) / taken[i]);
      return rect[i] + moved[i] + (by[i] < 0 ? became[i] - 1 - within : within);
    };
    outline = outline.map((one) => one.map(put));
    rect = [left + moved[0], top + moved[1], ...became];
    if (lands || again) landed = rect;
    paint(each.join(' '));
    draw();
  }

  /** Draws the edited or original image, and the current gesture over it. */
  function draw() {
    const shown = (original && pictures.original) || pictures.upload;
    if (!shown || !plot.clientWidth || !ready()) return;
    const [w, h] = pictures.size;
    scale = Math.min(plot.clientWidth / w, plot.clientHeight / h);
    const context = fit(canvas, w * scale, h * scale, window.devicePixelRatio || 1);
    context.scale(scale, scale);
    context.drawImage(shown, 0, 0, w, h);
    if (original) return;
    const now =
      down?.points && !pieces() ? [{ points: down.points, erases: tool === 'erase', wide: wide() }] : [];
    for (const one of [...drafts, ...now]) {
      const strokeStyle = one.erases ? 'rgb(255 255 255 / .5)' : 'rgb(127 127 127 / .65)';
      Object.assign(context, { strokeStyle, lineWidth: one.wide, lineCap: 'round', lineJoin: 'round' });
      context.beginPath();
      one.points.forEach(([x, y]) => context.lineTo(x, y));
      context.lineTo(...one.points.at(-1));
      context.stroke();
    }
    const [across, along] = down?.takes ? [down.to[0] - down.from[0], down.to[1] - down.from[1]] : [0, 0];
    const line = () => {
      context.beginPath();
      const around = rect ? outline : pieces() && down?.points ? down.points : [];
      for (const [x, y] of around) context.lineTo(x + across, y + along);
      if (rect) around.length ? context.closePath() : context.rect(...moved(rect));
    };
    const moved = ([x, y, ...sides]) => [x + across, y + along, ...sides];
    if (rect && (across || along)) {
      context.save();
      line();
      context.clip();
      const part = rect.map((length) => (length * shown.width) / w);
      context.drawImage(shown, ...part, ...moved(rect));
      context.restore();
    }
    // visible on any background
    Object.assign(context, {
      lineWidth: 2 / scale,
      strokeStyle: '#fff',
      globalCompositeOperation: 'difference',
    });
    line();
    context.stroke();
    if (cursor && !down?.takes) {
      const arm = 8 / scale;
      context.strokeRect(cursor[0] - arm, cursor[1], 2 * arm, 0);
      context.strokeRect(cursor[0], cursor[1] - arm, 0, 2 * arm);
    }
    context.globalCompositeOperation = 'source-over';
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
    if (photo !== of)
      [of, wanted, past, future, drafts, rect, pictures] = [photo, strokes, [], [], [], null, {}];
    else if (!question.open() && strokes !== wanted) {
      past = [...past, wanted].slice(-STEPS);
      [wanted, drafts] = [strokes, []];
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
    waits();
    if (strokes === wanted) drafts = [];
    draw();
  }

  function hold(on) {
    const shows = on && Boolean(wanted);
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
      step(...(shiftKey ? [future, past] : [past, future]));
    } else if (open && key === 'Escape') root.hidePopover();
    else if (key.toLowerCase() === 'o' && !ctrlKey && !metaKey && !event.repeat) hold(true);
  });
  document.addEventListener('keyup', ({ key }) => key.toLowerCase() === 'o' && hold(false));
  window.addEventListener('blur', () => hold(false));
  new ResizeObserver(draw).observe(plot);
  listen('answered', (request) => {
    if (request !== 'retouch' || question.open() || wanted === props.value.strokes) return;
    [wanted, drafts, rect] = [props.value.strokes, [], null]; // refused
    past.pop();
    root.hidePopover(); // otherwise it would cover the error message
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
