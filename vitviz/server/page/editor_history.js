// Undo and redo of an image's edits.

const STEPS = 100; // maximum undo steps

/** Makes a history; `request` is called with each text of edits that the visitor's steps lead to. */
export function editHistory(/** @type {(edits: string) => void} */ request) {
  let now = '';
  /** @type {string[]} */
  let past = [];
  /** @type {string[]} */
  let future = [];
  const kept = () => [...past, now].slice(-STEPS);

  function step(/** @type {string[]} */ from, /** @type {string[]} */ to) {
    const next = from.pop();
    if (next === undefined) return false;
    to.push(now);
    now = next;
    request(now);
    return true;
  }

  return {
    /** The edits requested last. */
    now: () => now,
    undoes: () => past.length > 0,
    redoes: () => future.length > 0,
    /** False if there is nothing to undo. */
    undo: () => step(past, future),
    redo: () => step(future, past),
    /** A new step. */
    paint(/** @type {string} */ edits) {
      if (edits === now) return;
      [past, future, now] = [kept(), [], edits];
      request(now);
    },
    /** Edits of another image. */
    restart(/** @type {string} */ edits) {
      [past, future, now] = [[], [], edits];
    },
    /** Edits that were not requested here. */
    follow(/** @type {string} */ edits) {
      [past, now] = [kept(), edits];
    },
    /** Takes the last step back, which the server refused. */
    refuse(/** @type {string} */ edits) {
      past.pop();
      now = edits;
    },
  };
}
