// A chart that is made step by step, each step by passes of its own: how far it is, stop, and on from there.

import { Refusal, unpacked } from '../../canvas/data.js';
import { button, el } from '../../canvas/elements.js';
import { asText } from '../../canvas/memory.js';
import { t } from '../../canvas/words.js';

/**
 * `next()` is the next step's {question, took(chart)}, none at the end; `draw()` draws what there is.
 * `item` is what the chart is asked for as. `progress(done, count, told)` shows how far it is, and `halt()`
 * stops; what is there stays.
 */
export function stepwise(self, { next, draw, item = 'chart' }) {
  let flight = null;
  const bar = el('progress', { max: 1, value: 0 });
  const told = el('span', { role: 'status' });
  const go = button('', () => (flight ? halt() : run()));
  const problem = el('p', { class: 'vv-text' });

  function halt() {
    flight?.abort();
    flight = null;
    draw();
  }

  async function run() {
    flight?.abort();
    const own = new AbortController();
    [flight, problem.textContent] = [own, ''];
    draw();
    try {
      for (let step = next(); step; step = next()) {
        const found = await self.array(item, asText(step.question), own.signal);
        if (flight !== own) return;
        step.took(unpacked(found));
        draw();
      }
    } catch (failed) {
      if (flight !== own) return; // stopped, or about something else by now
      problem.textContent = failed instanceof Refusal ? t(failed.sentence) : failed.message;
    }
    if (flight !== own) return;
    flight = null;
    draw();
  }

  function progress(done, count, said) {
    bar.value = done / count;
    bar.hidden = go.hidden = done === count;
    go.textContent = flight ? t('Stop') : done ? t('Go on') : t('Begin');
    told.textContent = done === count ? '' : said;
  }

  return { nodes: [bar, told, go], problem, run, halt, progress };
}
