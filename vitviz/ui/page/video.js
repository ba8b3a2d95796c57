// A video: the server decodes it, the timeline below goes over its frames, and every view in view shows the
// one that is chosen.

import { address, asked, Refusal, sent } from '../../canvas/data.js';
import { button, div } from '../../canvas/elements.js';
import { t } from '../../canvas/words.js';
import { begin, drawnIn, stage } from './live.js';

const LARGEST = 20; // MB, as Gradio takes on
const LOOKS = 300; // ms between two looks at whether something else is seen
const STANDS = 8000; // ms after which a frame is looked at again, or the server would forget it

const timeline = (detail) => document.dispatchEvent(new CustomEvent('vitviz:timeline', { detail }));

async function open(file) {
  const flight = new AbortController();
  /** @type {any} */
  let over = null;
  let watch = 0;
  const mine = begin(
    async () => (await fetch(address(`${mine.drawn}/picture/upload`))).blob(),
    () => {
      flight.abort();
      clearInterval(watch);
      if (!over) return;
      timeline(null);
      asked(`${over.video}/live`, { video: over.video }, true).catch(() => {});
    },
  );
  try {
    if (file.size > LARGEST * 2 ** 20)
      throw new Refusal(t('A video may have {size} MB at most. Cut or save it smaller.', { size: LARGEST }));
    stage().pass({ ...stage().given(), told: t('Reading the video …') });
    const path = await sent(file, flight.signal);
    const found = await asked(`${stage().given().key}/video`, { path }, false, flight.signal);
    if (!mine.on()) return;
    if (found.frames.length === 1) {
      mine.stop();
      return stage().fail(new Refusal(t('This video has one frame. Drop it in as a picture.')));
    }
    over = overFrames(mine, found);
    watch = setInterval(over.look, LOOKS);
    timeline(over);
  } catch (problem) {
    if (!mine.on()) return;
    mine.stop();
    stage().fail(problem);
  }
}

/** What the timeline goes over. */
function overFrames(mine, { video, frames, step }) {
  let [at, drawn, looked] = [0, '', 0];
  const state = () => JSON.stringify([stage()?.given().key, drawnIn()]);
  const from = button('', () => mark('first', at), { class: 'vv-film-more' });
  const to = button('', () => mark('last', at), { class: 'vv-film-more' });
  const over = {
    video,
    frames,
    first: 0,
    last: frames.length - 1,
    took: 0,
    title: () => t('Video'),
    plays: () => t('Play the video'),
    curve: () => t('More'),
    says: () => '',
    tools: [div('vv-film-tools', from, to)],
    pause: (index) => 1000 * ((frames[index + 1] ?? frames[index]).seconds - frames[index].seconds),
    draw() {},
    told: (_, index) => ({
      step: `${frames[index].seconds.toFixed(2)} s`,
      title: t('Video'),
      rows: [[t('Frame'), `${index + 1} / ${frames.length}`, '']],
      why: step > 1 ? t('Of the file every {step} frames one is shown.', { step }) : '',
    }),
    async show(index) {
      const begun = performance.now();
      [at, drawn, looked] = [index, state(), begun];
      try {
        const told = await mine.ask({ video, at: index });
        if (!told) return false;
        await mine.show(told, '');
      } catch (problem) {
        if (mine.on()) stage().fail(problem);
        throw problem;
      }
      over.took = performance.now() - begun;
      document.documentElement.dataset.live = String(index);
      return mine.on();
    },
    /** Shows the frame anew where something else is seen by now, or the server has forgotten it. */
    async look() {
      if (drawn && drawn !== state()) return over.again();
      if (performance.now() < looked + STANDS) return;
      looked = performance.now();
      const there = await fetch(address(`${mine.last}/picture/input`)).catch(() => null);
      if (there && !there.ok) over.again();
    },
    again: () => {},
  };

  /** Where playing, and what is taken home, begin and end. */
  function mark(end, index) {
    over[end] = index;
    if (over.first > over.last) over[end === 'first' ? 'last' : 'first'] = index;
    from.textContent = t('From {seconds} s', { seconds: frames[over.first].seconds.toFixed(2) });
    to.textContent = t('To {seconds} s', { seconds: frames[over.last].seconds.toFixed(2) });
  }
  mark('first', 0);
  from.title = t('Begin at the frame in view');
  to.title = t('End at the frame in view');
  return over;
}

/** Listens as long as the page is open. */
export function video() {
  document.addEventListener('vitviz:video', (/** @type {CustomEvent} */ { detail }) => open(detail));
}
