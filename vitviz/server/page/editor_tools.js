// The tools of the image editor: gestures of pointer and keyboard become paths and regions of the image.

import { enclosed, rectangle, within } from './editor_commands.js';

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * Makes the tools "brush", "erase", "move" and "copy". `canvas` is listened to; `place(event)` is a pointer's
 * position in pixels of the image. `free()` is true while regions are cut free-hand, `width()` is the brush
 * width, `size()` the image's size, and `ready()` false while gestures are ignored. `stroke(path)` gets a
 * finished path, `carry(shift)` the shift of the region; `ended()` follows a gesture, `changed()` any change.
 */
export function editorTools({ canvas, place, free, width, size, ready, stroke, carry, ended, changed }) {
  let tool = 'brush';
  /** @type {any} */
  let gesture = null; // a path, a rectangle from its corner, or a moved region
  /** @type {import('./editor_commands.js').Region | null} */
  let region = null;
  /** @type {any} */
  let cursor = null; // keyboard position
  const cuts = () => tool === 'move' || tool === 'copy';
  const shift = () => (gesture?.takes ? gesture.to.map((one, i) => one - gesture.from[i]) : [0, 0]);

  function begin(at) {
    const path = !cuts() || (free() && !within(at, region));
    if (path && cuts()) region = null;
    gesture = path ? { points: [at] } : { from: at, to: at, takes: within(at, region) };
  }

  function go(at) {
    if (gesture?.points) {
      const [x, y] = gesture.points.at(-1);
      const least = cuts() ? 2 : Math.max(1, width() / 6);
      if (Math.hypot(at[0] - x, at[1] - y) >= least) gesture.points.push(at);
    } else if (gesture) {
      gesture.to = at;
      if (!gesture.takes) region = rectangle(gesture.from, at, size());
    }
  }

  function end() {
    const [{ takes, points }, moved] = [gesture ?? {}, shift()];
    gesture = null;
    if (takes) carry(moved);
    else if (points && cuts()) region = enclosed(points, size());
    else if (points) stroke({ points, erases: tool === 'erase', wide: width() });
    ended();
  }

  canvas.addEventListener('pointerdown', (event) => {
    if (event.button || gesture || !ready()) return;
    canvas.setPointerCapture(event.pointerId);
    cursor = null;
    begin(place(event));
    changed();
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!gesture || cursor) return;
    go(place(event));
    changed();
  });
  canvas.addEventListener('pointerup', () => {
    if (!cursor) end();
    changed();
  });
  canvas.addEventListener('pointercancel', () => {
    gesture = null;
    changed();
  });
  canvas.addEventListener('keydown', (event) => {
    const { key, repeat, shiftKey } = event;
    const [step, sets] = [ARROWS[key], key === 'Enter' || key === ' '];
    if (!ready() || !(step || sets || (key === 'Escape' && gesture))) return;
    event.preventDefault();
    cursor ??= size().map((side) => Math.round(side / 2));
    if (step) {
      if (region && !gesture) {
        const { rect } = region;
        cursor = [0, 1].map((i) => rect[i] + Math.floor(rect[i + 2] / 2));
        begin(cursor);
      }
      const to = cursor.map((one, i) => one + step[i] * (shiftKey ? 10 : 1));
      cursor = gesture?.takes ? to : to.map((one, i) => Math.min(size()[i], Math.max(0, one)));
      go(cursor);
    } else if (!sets) gesture = null;
    else if (!repeat) gesture ? end() : begin(cursor);
    changed();
  });

  return {
    name: () => tool,
    region: () => region,
    cuts,
    take(name) {
      [tool, region, gesture] = [name, null, null];
    },
    /** Sets the region, null for none; the tool stays the same by default. */
    select(next, name = tool) {
      [region, tool] = [next, name];
    },
    /** What is drawn over the image: path, region with its shift, and cursor. */
    drawing: () => ({
      path: gesture?.points && { points: gesture.points, erases: tool === 'erase', wide: width() },
      cuts: cuts(),
      region,
      shift: shift(),
      cursor: gesture?.takes ? null : cursor,
    }),
  };
}
