// One history over strokes and fills. An entry is a list of changes that are done and undone together.

import { diffBytes } from "./mask.js";

/** @typedef {{diff?: import("./mask.js").Diff, patch?: import("./picture.js").Patch, variants?: import("./picture.js").Patch[]}} Change `patch` is one of the `variants` */
/** @typedef {{changes: Change[]}} Entry */

const MOST_ENTRIES = 100;
const MOST_BYTES = 384 * 2 ** 20;

export class History {
  /** @type {Entry[]} */
  #done = [];
  /** @type {Entry[]} */
  #undone = [];

  get canUndo() {
    return this.#done.length > 0;
  }

  get canRedo() {
    return this.#undone.length > 0;
  }

  /** The latest entry that is not undone. @returns {Entry | undefined} */
  get last() {
    return this.#done.at(-1);
  }

  /** Adds an entry; undone entries can no longer be redone, and the oldest entries beyond the limits become final. */
  push(entry) {
    this.#undone = [];
    this.#done.push(entry);
    while (this.#done.length > 1 && (this.#done.length > MOST_ENTRIES || this.bytes > MOST_BYTES)) this.#done.shift();
  }

  /** Size in bytes of all entries, to undo and to redo. */
  get bytes() {
    return [...this.#done, ...this.#undone].reduce((sum, entry) => sum + entryBytes(entry), 0);
  }

  /** Returns the entry to undo, and moves it to the entries that can be redone. @returns {Entry | undefined} */
  undo() {
    return move(this.#done, this.#undone);
  }

  /** Returns the entry to redo, and moves it back to the entries that can be undone. @returns {Entry | undefined} */
  redo() {
    return move(this.#undone, this.#done);
  }
}

function move(from, to) {
  const entry = from.pop();
  if (entry) to.push(entry);
  return entry;
}

function entryBytes({ changes }) {
  return changes.reduce((sum, { diff, patch, variants = patch ? [patch] : [] }) => sum + (diff ? diffBytes(diff) : 0) + variants.reduce((all, { bytes }) => all + bytes, 0), 0);
}
