// Sends the requests of one component event one at a time. While one is running, only the newest further
// request is kept; it is sent next.
//
// Gradio drops requests that come while an event is running ("once"), or repeats the first one's data
// afterwards ("always_last"); several at once ("multiple") finish in any order. page/build.py signals when a
// request has been answered or refused.

import { listen } from '../../frontend/events.js';

/**
 * @param {(name: string, data: any) => void} trigger of the component
 * @param {string} event
 */
export function questions(trigger, event) {
  let open = false;
  let waiting = null;

  function ask(data) {
    open = true;
    trigger(event, data);
  }

  listen('answered', (request) => {
    if (request !== event || !open) return;
    const next = waiting;
    [open, waiting] = [false, null];
    if (next) ask(next);
  });
  return {
    /** Sends a request now, or after the running one. */
    ask(data) {
      if (open) waiting = data;
      else ask(data);
    },
    /** True while a request is running. */
    open: () => open,
  };
}
