// A video: the server decodes it, the timeline selects a frame, and all visible views show it. A strip shows
// one number of every head for every computed frame.

import { tinted } from '../../frontend/colours.js';
import { aborted, address, asked, Refusal, sent } from '../../frontend/data.js';
import { button, div, selection, svg } from '../../frontend/elements.js';
import { listen, send } from '../../frontend/events.js';
import { save } from '../../frontend/export.js';
import { t } from '../../frontend/i18n.js';
import { bounds, number } from '../../frontend/numbers.js';
import { filmed } from '../../frontend/video_dialog.js';
import { begin, drawnIn, seen, stage } from './live.js';

const EDGE = { left: 40, right: 40 };
const TALL = 110;
const LOW = TALL - 22;

/** `rows[frame].heads` has one number per head of each layer; frames that were not computed stay empty. */
function drawStrip(plot, frames, rows, at) {
  const wide = plot.parentNode.clientWidth - 28;
  const count = rows.find((row) => row?.heads)?.heads.length ?? 0;
  if (wide <= 0 || !count) return plot.replaceChildren();
  const values = new Float32Array(count * frames.length).fill(NaN);
  rows.forEach((row, frame) =>
    row?.heads?.forEach((value, head) => {
      values[head * frames.length + frame] = value;
    }),
  );
  const [low, high] = bounds(values.filter(Number.isFinite));
  const right = wide - EDGE.right;
  const span = right - EDGE.left;
  const each = span / frames.length;
  const x = EDGE.left + each * (at + 0.5);
  const strip = tinted(values, count, frames.length, 'viridis', low, high);
  const place = { x: EDGE.left, y: 4, width: span, height: LOW - 4, preserveAspectRatio: 'none' };
  const end = { x: EDGE.left - 6, 'text-anchor': 'end' };
  plot.setAttribute('width', wide);
  plot.setAttribute('height', TALL);
  plot.setAttribute('aria-label', t('Heads over time: {low} to {high}', told(low, high)));
  plot.replaceChildren(
    svg('image', { href: strip.toDataURL(), style: 'image-rendering: pixelated', ...place }),
    svg('line', { class: 'vv-film-at', x1: x, x2: x, y1: 0, y2: LOW + 4 }),
    svg('text', { ...end, y: 14 }, '1'),
    svg('text', { ...end, y: LOW }, t('Layer')),
    svg('text', { x: EDGE.left, y: TALL - 6 }, t('Heads over time: {low} to {high}', told(low, high))),
  );
}

const told = (low, high) => ({ low: number(low), high: number(high) });

const LARGEST = 20; // MB, Gradio's limit
const LOOKS = 300; // ms between two checks whether the visible views have changed
const STANDS = 8000; // ms between two uses of a frame, which the server would otherwise delete

async function open(file) {
  const flight = new AbortController();
  /** @type {any} */
  let over = null;
  let watch = 0;
  const mine = begin(
    async () => (await fetch(address(`${mine.drawn}/picture/upload`))).blob(),
    () => {
      flight.abort();
      over?.quit();
      clearInterval(watch);
      if (!over) return;
      send('timeline', null);
      asked(`${over.video}/live`, { video: over.video }, true).catch(() => {});
    },
  );
  try {
    if (file.size > LARGEST * 2 ** 20)
      throw new Refusal(t('A video may have at most {size} MB. Shorten or compress it.', { size: LARGEST }));
    stage().pass({ ...stage().given(), told: t('Reading the video …') });
    const path = await sent(file, flight.signal);
    const found = await asked(`${stage().given().key}/video`, { path }, false, flight.signal);
    if (!mine.on()) return;
    if (found.frames.length === 1) {
      mine.stop();
      return stage().fail(new Refusal(t('This video has one frame. Upload it as an image.')));
    }
    over = overFrames(mine, found);
    watch = setInterval(over.look, LOOKS);
    send('timeline', over);
  } catch (problem) {
    if (!mine.on()) return;
    mine.stop();
    stage().fail(problem);
  }
}

const shortly = (seconds) => `${seconds.toFixed(2)} s`;

/** The video's timeline. */
function overFrames(mine, { video, frames, step, most }) {
  let [at, drawn, looked, measuring] = [0, '', 0, false];
  /** @type {any} */
  let of = {}; // what the numbers belong to
  /** @type {any[]} */
  let rows = [];
  /** @type {number[]} */
  let flickers = [];
  const state = () => JSON.stringify([stage()?.given().key, drawnIn()]);
  const more = { class: 'vv-film-more' };
  const from = button('', () => mark('first', at), { ...more, title: t('Start at the current frame') });
  const to = button('', () => mark('last', at), { ...more, title: t('End at the current frame') });
  const heads = selection({ 'aria-label': t('Shown in the strip'), onchange: () => over.again() }, [
    ['distance', t('Distance of each head (px)')],
    ['entropy', t('Entropy of each head (nats)')],
    ['share', t('Contribution of each head (logits)')],
  ]);
  const all = button(t('All frames'), measure, { ...more, 'aria-pressed': 'false' });
  const title = t('Export at most {count} evenly spaced frames; press again to stop', { count: most });
  const films = ['mp4', 'gif'].map((form) =>
    button(form.toUpperCase(), ({ currentTarget }) => taking(currentTarget, form), { ...more, title }),
  );
  /** @type {AbortController | null} */
  let filming = null;
  const table = button(t('Table (.csv)'), taken, more);
  /** The numbers requested with a frame; numbers of other requests are dropped. */
  const fronted = () =>
    seen().find((one) => one.name !== 'stage' && !one.given().second && one.value.controls);
  function asks() {
    const front = fronted();
    const key = stage().given().key;
    const settings = front?.settings;
    const now = { rows: `${key} ${heads.value}`, flickers: JSON.stringify([key, front?.name, settings]) };
    if (now.rows !== of.rows) rows = [];
    if (now.flickers !== of.flickers) flickers = [];
    of = now;
    return { heads: heads.value, flickers: front && [front.name, settings] };
  }
  function noted(index, { row }) {
    rows[index] = row;
    if (row.flicker !== null) flickers[index] = row.flicker;
  }
  const over = {
    video,
    frames,
    first: 0,
    last: frames.length - 1,
    took: 0,
    title: () => t('Video'),
    plays: () => t('Play the video'),
    curve: () => t('Over time'),
    says: () => t('Change of the current map from frame to frame, averaged over patches'),
    tools: [div('vv-buttons', heads, all, from, to, table, ...films)],
    pause: (index) => 1000 * ((frames[index + 1] ?? frames[index]).seconds - frames[index].seconds),
    draw: (plot, _, index) => drawStrip(plot, frames, rows, index),
    told(_, index) {
      const known = flickers.filter((one) => one !== undefined);
      const mean = known.reduce((sum, one) => sum + one, 0) / known.length;
      const changes = { count: known.length, mean: number(mean) };
      const told = [
        rows[index]?.refused && t(rows[index].refused),
        known.length && t('Mean flicker over {count} changes: {mean}.', changes),
        step > 1 && t('Showing one of every {step} frames of the file.', { step }),
      ];
      return {
        step: shortly(frames[index].seconds),
        title: t('Video'),
        rows: [
          [t('Frame'), `${index + 1} / ${frames.length}`, ''],
          [t('Flicker'), flickers[index] === undefined ? '–' : number(flickers[index]), ''],
        ],
        why: told.filter(Boolean).join(' '),
      };
    },
    async show(index) {
      const begun = performance.now();
      [at, drawn, looked] = [index, state(), begun];
      try {
        const question = asks();
        const told = await mine.ask({ video, at: index, ...question });
        if (!told) return false;
        noted(index, told);
        await mine.show(told, '');
      } catch (problem) {
        if (mine.on()) stage().fail(problem);
        throw problem;
      }
      over.took = performance.now() - begun;
      document.documentElement.dataset.live = String(index);
      return mine.on();
    },
    /** Shows the frame again if the visible views have changed, or if the server has deleted the frame. */
    async look() {
      if (drawn && drawn !== state()) return over.again();
      if (performance.now() < looked + STANDS) return;
      looked = performance.now();
      const there = await fetch(address(`${mine.drawn}/picture/input`)).catch(() => null);
      if (there && !there.ok) over.again();
    },
    quit: () => filming?.abort(),
    again: () => {},
    retell: () => {},
  };

  /** Computes the numbers of all frames in the selected range, or stops the computation. */
  async function measure() {
    measuring = !measuring;
    all.setAttribute('aria-pressed', String(measuring));
    let last = '';
    for (let index = over.first; measuring && mine.on() && index <= over.last; index++) {
      const question = asks();
      if (rows[index] && (index === 0 || flickers[index] !== undefined)) continue;
      const asking = { video, at: index, views: [], last, ...question };
      const told = await asked(`${stage().given().key}/live`, asking).catch((problem) => ({ problem }));
      if (!mine.on() || told.problem) break;
      last = told.key;
      noted(index, told);
      over.retell();
    }
    if (last) asked(`${last}/live`, { last }).catch(() => {});
    measuring = false;
    all.setAttribute('aria-pressed', 'false');
  }

  /** Exports the selected view over the selected range as a file, or stops the export. */
  async function taking(pressed, form) {
    if (filming) return filming.abort();
    filming = new AbortController();
    const front = fronted();
    const at = (name, query) => `${stage().given().key}/${front?.name}/${name}?${query}`;
    const asked = { 'film.over': 'video', 'film.video': video };
    const ends = { 'film.first': over.first, 'film.last': over.last };
    const say = (text) => (pressed.textContent = text);
    say(t('Drawing …'));
    await filmed(at, form, { ...front?.settings, ...asked, ...ends }, filming.signal, say).catch(
      (problem) => !aborted(problem) && mine.on() && stage().fail(problem),
    );
    filming = null;
    say(form.toUpperCase());
  }

  /** Saves a table with one row per computed frame in the selected range. */
  function taken() {
    const named = rows.find((row) => row?.heads)?.heads ?? [];
    const { heads: count } = stage().value;
    const told = (_, i) => `${heads.value} ${1 + Math.floor(i / count)}.${1 + (i % count)}`;
    const quantity = stage().value.head_type === 'value' ? 'value' : 'probability';
    const lines = [['frame', 'time', 'answer', quantity, 'flicker', ...named.map(told)]];
    for (let index = over.first; index <= over.last; index++) {
      const row = rows[index];
      const { number: counted, seconds } = frames[index];
      const known = row && [row.answer, row[quantity], flickers[index], ...(row.heads ?? [])];
      if (known) lines.push([counted, seconds, ...known]);
    }
    const cell = (one) => (typeof one === 'string' ? `"${one.replaceAll('"', '""')}"` : (one ?? ''));
    const text = lines.map((line) => `${line.map(cell).join(',')}\n`).join('');
    save(new Blob([text], { type: 'text/csv' }), 'vitviz-video.csv');
  }

  /** Sets the start or end of the range for playback and export. */
  function mark(end, index) {
    over[end] = index;
    if (over.first > over.last) over[end === 'first' ? 'last' : 'first'] = index;
    from.textContent = t('From {seconds} s', { seconds: frames[over.first].seconds.toFixed(2) });
    to.textContent = t('To {seconds} s', { seconds: frames[over.last].seconds.toFixed(2) });
  }
  mark('first', 0);
  return over;
}

/** Listens as long as the page is open. */
export function video() {
  listen('open-video', open);
}
