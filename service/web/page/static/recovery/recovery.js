// Stores the work of one tab continuously, and restores it after a reload.

import { Patch, Picture } from "../editing/picture.js";
import { $ } from "../ui/dom.js";
import { say } from "../ui/status.js";
import { WorkStore } from "./store.js";

const LARGEST_WORK = 512 * 2 ** 20;
const LONGEST_KEPT_MS = 7 * 24 * 3600 * 1000;
const QUIET_MS = 400;
const LONGEST_UNLOAD_MS = 30_000;

export class Recovery {
  #store = new WorkStore();
  /** @type {Set<string>} ids of the pictures and fills that are stored */
  #stored = new Set();
  /** @type {Set<string>} ids of stored pictures and fills that could not be opened: the next reload tries again */
  #unopened = new Set();
  /** @type {Set<Picture>} */
  #changed = new Set();
  #timer = 0;
  #on = false;
  #warned = false;
  #writing = Promise.resolve();
  /** Number of writes that have begun or wait for another one. */
  #writes = 0;
  /** Between tabs: `delete` the work, else the tab that stores it would write part of it again; who is the `owner`? */
  #tabs = new BroadcastChannel("retouch-work");
  /** Stops the wait for another tab to give up its role. */
  #second = new AbortController();
  /** Whether this tab is the one that stores work. */
  #owner = false;

  /** @param {import("../photographs/workspace.js").Workspace} workspace */
  constructor(workspace) {
    this.workspace = workspace;
    $("forget").onclick = () => {
      this.#tabs.postMessage("delete");
      this.#forget();
    };
    this.#tabs.onmessage = ({ data }) => {
      if (data === "delete") this.#forget();
      else if (data === "present") this.#second.abort();
      else if (this.#owner) this.#tabs.postMessage("present");
    };
  }

  /** Restores stored work and stores further work; not in a second tab, which would overwrite the first one's. */
  async start() {
    addEventListener("beforeunload", (event) => this.#lossy && event.preventDefault());
    if (!(await this.#becomesOwner())) return this.#warn("Retouch is open in another tab. Work in this tab is not stored: reloading loses it.");
    try {
      await this.#restore();
      this.#on = true;
    } catch {
      return; // storage is off or full: the page works without
    }
    for (const type of ["edit", "active"]) this.workspace.addEventListener(type, ({ detail }) => this.#note(detail));
    this.workspace.addEventListener("list", ({ detail }) => {
      this.#note(detail);
      this.#flush();
    });
    for (const picture of this.workspace.pictures) this.#note(picture);
    addEventListener("visibilitychange", () => this.#flush()); // a phone may end a page that is not seen
    addEventListener("pagehide", () => {
      this.#owner = false;
      if (this.#on && this.#changed.size) this.#write().catch(() => {}); // at once, even during another write
    });
  }

  /**
   * Resolves to whether this tab is the one that stores work. The page that a reload replaces may hold that role for
   * seconds, but does not answer; a second tab's role ends when the first one answers.
   */
  #becomesOwner() {
    if (!navigator.locks) return true;
    return new Promise((resolve) => {
      const untilUnload = () => {
        resolve((this.#owner = true));
        this.#tabs.postMessage("present");
        return new Promise(() => {});
      };
      navigator.locks.request("retouch-work", { signal: this.#second.signal }, untilUnload).catch(() => resolve(false));
      this.#tabs.postMessage("owner");
      setTimeout(() => this.#owner || this.#second.abort(), LONGEST_UNLOAD_MS); // a frozen tab answers nothing either
    });
  }

  async #restore() {
    const { pictures, files, masks, patches } = await this.#store.all();
    const fresh = pictures.filter(({ saved }) => Date.now() - saved < LONGEST_KEPT_MS).sort((a, b) => a.order - b.order);
    const edited = fresh.find(({ active }) => active) ?? fresh[0];
    for (const { id, name, fills } of fresh) {
      const picture = await Picture.open(files.find((one) => one.id === id)?.file, name, id).catch(() => null);
      if (!picture) {
        for (const one of [id, ...fills]) this.#unopened.add(one);
        continue;
      }
      this.#stored.add(id);
      bringBack(picture, fills, patches, masks.find((mask) => mask.id === id)?.diff);
      picture.patches.forEach((patch) => this.#stored.add(patch.id));
      await this.workspace.add(picture, id === edited.id);
    }
    await this.#keep();
    if (this.#unopened.size) say("Not every stored photograph could be opened. Reload to try again.", true);
    else if (fresh.length) say("Your work is back. To remove it from this browser, choose Save, Delete stored work.");
  }

  /** Whether there is work that is not stored. */
  get #lossy() {
    return (!this.#on || this.#warned || this.#writes || this.#changed.size) && this.workspace.pictures.some(({ history }) => history.canUndo);
  }

  #note(picture) {
    if (picture) this.#changed.add(picture);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#flush(), QUIET_MS);
  }

  #flush() {
    clearTimeout(this.#timer);
    if (!this.#on || !this.#changed.size) return;
    this.#writes++;
    this.#writing = this.#writing
      .then(() => this.#write())
      .catch(() => this.#warn("This browser has no space to store your work: reloading loses it."))
      .finally(() => this.#writes--);
  }

  async #write() {
    const { pictures, active } = this.workspace;
    const changed = [...this.#changed].filter((picture) => pictures.includes(picture));
    this.#changed.clear();
    if (pictures.reduce((sum, picture) => sum + bytesOf(picture), 0) > LARGEST_WORK) {
      this.#warn("Your work is too large to be stored in this browser: reloading loses it.");
      return;
    }
    const saved = Date.now();
    await this.#store.put({
      pictures: pictures.map(({ id, name, patches }, order) => ({ id, name, order, saved, active: id === active?.id, fills: patches.map((patch) => patch.id) })),
      files: pictures.filter(({ id }) => !this.#stored.has(id)).map(({ id, file }) => ({ id, file })),
      masks: changed.map(({ id, mask }) => ({ id, diff: mask.snapshot() })),
      patches: pictures.flatMap((picture) => picture.patches.filter(({ id }) => !this.#stored.has(id)).map((patch) => patch.plain)),
    });
    this.#stored = new Set(pictures.flatMap((picture) => [picture.id, ...picture.patches.map(({ id }) => id)]));
    await this.#keep();
  }

  #keep() {
    return this.#store.keep(new Set([...this.#stored, ...this.#unopened]));
  }

  async #forget() {
    this.#on = false;
    clearTimeout(this.#timer);
    await this.#writing;
    this.#stored.clear();
    this.#unopened.clear();
    await this.#keep();
    say("Deleted: this browser stores none of this work. Open photographs stay open until you leave.");
  }

  #warn(text) {
    if (!this.#warned) say(text, true);
    this.#warned = true;
  }
}

/** Each fill and the mask become a step of the history, so that they can be undone after a reload too. */
function bringBack(picture, fills, patches, diff) {
  const done = (change) => {
    const entry = { changes: [change] };
    picture.apply(entry, false);
    picture.history.push(entry);
  };
  for (const id of fills) {
    const found = patches.find((patch) => patch.id === id);
    if (found) done({ patch: new Patch(found, found.pixels, found.inside, id) });
  }
  if (diff?.size) done({ diff });
}

function bytesOf({ file, patches }) {
  return file.size + patches.reduce((sum, patch) => sum + patch.inside.length * 5, 0);
}
