// The page's custom events. They are dispatched on the document and connect parts of the page that do not
// import each other. server/page/build.py sends "answered" and "unanswered".

/**
 * The payload of each event. A head is "layer.head", counted from 1; patches count from 0.
 *
 * @typedef {object} Events
 * @property {{heads?: string[], mlps?: string[], patches?: number[], patches_as?: string}} ablate
 *   Remove these parts as well.
 * @property {{heads: string[]} | undefined} restore Restore these heads; without a payload all removed parts.
 * @property {undefined} reset-edits Restore all removed parts and the original image.
 * @property {HTMLElement} edit-image Open the image editor; the focus returns to this element.
 * @property {boolean} show-original Show the image before its edits, or the edited one again.
 * @property {undefined} start-camera Start the camera.
 * @property {File} open-video Open a video file.
 * @property {any} timeline Show this video's timeline; the training history again for null.
 * @property {any} live-frame The result of a frame of camera or video; null at the end.
 * @property {string} show-snapshot Show this training snapshot.
 * @property {{text: string} | ''} notice Show this message; '' hides the message.
 * @property {string} answered The request of this component event has been answered or refused.
 * @property {string} unanswered The request of this component event has failed.
 * @property {string[]} explained-classes Classes that a view explains: one, or one compared with another.
 * @property {undefined} leave-for-lesson A link opens a lesson.
 * @property {string} highlight The highlighted key; '' for none.
 */

/**
 * Sends an event.
 * @type {<Name extends keyof Events>(name: Name, ...payload: undefined extends Events[Name]
 *   ? [Events[Name]?] : [Events[Name]]) => void}
 */
export const send = (name, ...[detail]) =>
  void document.dispatchEvent(new CustomEvent(`vitviz:${name}`, { detail }));

/**
 * Calls `run` with the payload of every such event, until `signal` aborts.
 * @type {<Name extends keyof Events>(name: Name, run: (payload: Events[Name]) => void, signal?: AbortSignal)
 *   => void}
 */
export const listen = (name, run, signal) =>
  document.addEventListener(`vitviz:${name}`, (event) => run(/** @type {any} */ (event).detail), { signal });
