// A chart computed step by step, with forward passes for each step: progress, stop, and continue.

import { sentenceOf, unpacked } from '../../frontend/data.js';
import { button, el } from '../../frontend/elements.js';
import { t } from '../../frontend/i18n.js';
import { chartBeside } from '../../frontend/plotly_chart.js';
import { asText } from '../../frontend/view_state.js';

/**
 * A stepwise chart: `figure` is the chart after `done` steps. `next(self, made)` returns the next step's
 * {question, done} and further fields to set, or null at the end; `draw(self, made)` draws the current chart.
 * `item` is the requested item, `pick` the chart's option. `about(goal)` clears results of another goal and
 * returns true if there was one; `progress(count, told)` shows the progress; `halt()` stops and keeps the
 * results.
 * @param {any} self
 * @param {{next: Function, draw: Function, item?: string, pick?: (of: any) => void}} options
 */
export function stepwise(self, { next, draw: drawn, item = 'chart', pick }) {
  const made = { goal: '', done: 0, figure: null, drawn: chartBeside(self, { pick }) };
  const draw = () => drawn(self, made);
  /** @type {AbortController | null} */
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

  /** The reason why nothing can be computed, if known; then nothing is requested. */
  const refusal = () => self.value.summary.refusal;

  async function run() {
    flight?.abort();
    if (refusal()) return halt();
    const own = new AbortController();
    [flight, problem.textContent] = [own, ''];
    draw();
    try {
      for (let step = next(self, made); step; step = next(self, made)) {
        const { question, ...now } = step;
        const found = await self.array(item, asText(question), own.signal);
        if (flight !== own) return;
        Object.assign(made, now, { figure: unpacked(found) });
        draw();
      }
    } catch (failed) {
      if (flight !== own) return; // stopped, or other settings by now
      problem.textContent = t(sentenceOf(failed));
    }
    if (flight !== own) return;
    flight = null;
    draw();
  }

  function about(goal) {
    const other = made.goal !== goal;
    if (other) Object.assign(made, { goal, done: 0, figure: null });
    if (other) problem.textContent = refusal() ? t(refusal()) : '';
    return other;
  }

  function progress(count, said, done = made.done) {
    bar.value = done / count;
    bar.hidden = go.hidden = done === count || Boolean(refusal());
    go.textContent = flight ? t('Stop') : done ? t('Continue') : t('Begin');
    told.textContent = bar.hidden ? '' : said;
    made.node.dataset.done = done === count ? 'all' : String(done);
  }

  return Object.assign(made, { nodes: [bar, told, go], problem, run, halt, about, progress });
}
