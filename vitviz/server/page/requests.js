// The questions of one event of a part, one at a time: of those that come while one is under way the newest
// is asked next, and none is lost.
//
// Gradio drops what comes while an event is under way ("once"), or repeats the data of the first when that is
// answered ("always_last"); several at once ("multiple") are answered in any order. page/build.py tells when
// one has been answered, refused or not.

/**
 * @param {(name: string, data: any) => void} trigger the part's own
 * @param {string} event
 */
export function questions(trigger, event) {
  let open = false;
  let waiting = null;

  function ask(data) {
    open = true;
    trigger(event, data);
  }

  document.addEventListener('vitviz:answered', (/** @type {CustomEvent} */ { detail }) => {
    if (detail !== event || !open) return;
    const next = waiting;
    [open, waiting] = [false, null];
    if (next) ask(next);
  });
  return {
    /** Asks now, or once what is under way has been answered. */
    ask(data) {
      if (open) waiting = data;
      else ask(data);
    },
    /** Whether an answer is still to come. */
    open: () => open,
  };
}
