// One history over strokes and fills. An entry is a list of changes that are done and undone together.

import { diffBytes } from "./mask.js";

/** @typedef {{diff?: import("./mask.js").Diff, patch?: import("./picture.js").Patch}} Change */
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

  /** The latest entry that is in place. @returns {Entry | undefined} */
  get last() {
    return this.#done.at(-1);
  }

  /** Adds an entry; what was undone can no longer be redone, and the oldest entries beyond the limits become final. */
  push(entry) {
    this.#undone = [];
    this.#done.push(entry);
    while (this.#done.length > 1 && (this.#done.length > MOST_ENTRIES || this.bytes > MOST_BYTES)) this.#done.shift();
  }

  /** Bytes that the entries take, of both directions. */
  get bytes() {
    return [...this.#done, ...this.#undone].reduce((sum, entry) => sum + entryBytes(entry), 0);
  }

  /** The entry to undo, moved to those that can be redone. @returns {Entry | undefined} */
  undo() {
    return move(this.#done, this.#undone);
  }

  /** The entry to redo, moved back. @returns {Entry | undefined} */
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
  return changes.reduce((sum, { diff, patch }) => sum + (diff ? diffBytes(diff) : 0) + (patch ? patch.bytes : 0), 0);
}
