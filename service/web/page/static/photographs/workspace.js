// The opened photographs, and the one that is edited.

import { Picture } from "../editing/picture.js";
import { grouped, listed, say } from "../ui/status.js";

/**
 * Events: `list` when photographs come or go, `active` when another one is edited, `edit` when the mask, the fills or
 * the history of one changed (`detail` is that picture).
 */
export class Workspace extends EventTarget {
  /** @type {Picture[]} */
  pictures = [];
  /** @type {Picture | null} */
  active = null;
  /** The picture chosen last, which may still be being decoded. @type {Picture | null} */
  #chosen = null;

  /** Opens files and edits the first of them. @param {Iterable<File>} files */
  async open(files) {
    const opened = []; // others may come meanwhile
    const failures = [];
    for (const file of files) {
      const name = file.name || "pasted.png";
      say(`Opening ${name}…`);
      try {
        const picture = await Picture.open(file, name);
        opened.push(picture);
        await this.add(picture, opened.length === 1);
      } catch (error) {
        failures.push({ name, reason: error.cause ?? `: ${error.message}` });
      }
    }
    const summary = { 0: "", 1: `${opened[0]?.name} is open. ` }[opened.length] ?? `${opened.length} photographs are open. `;
    const converted = opened.flatMap(({ origin }) => origin || []);
    const verb = converted.length > 1 ? "were" : "was";
    const note = converted.length ? `${listed(converted)} ${verb} converted to PNG; an animation becomes its first frame. ` : "";
    say(summary + note + grouped(failures), failures.length > 0);
  }

  /** Adds a picture; while it is not edited, its decoded pixels are freed. */
  async add(picture, edit) {
    this.pictures = [...this.pictures, picture];
    this.#tell("list", picture);
    if (edit) await this.activate(picture);
    else picture.release();
  }

  /** Edits a picture. @param {Picture | null} picture */
  async activate(picture) {
    this.#chosen = picture;
    if (picture === this.active) return;
    await picture?.load();
    const before = this.active;
    if (picture === before) return; // it was chosen twice
    if (picture !== this.#chosen) return picture?.release(); // another one was chosen during the wait
    this.active = picture;
    before?.release();
    this.#tell("active", picture);
  }

  /** Goes to the picture before or after. @param {-1 | 1} step */
  async step(step) {
    const at = this.pictures.indexOf(this.#chosen) + step;
    const next = this.pictures[at];
    if (!next) return;
    await this.activate(next);
    if (next === this.active) say(`${next.name}, ${at + 1} of ${this.pictures.length}.`, false, false); // what is seen says it already
  }

  async remove(picture) {
    picture.closing.abort();
    const at = this.pictures.indexOf(picture);
    this.pictures = this.pictures.filter((other) => other !== picture);
    if (picture === this.#chosen) this.#chosen = this.active;
    if (picture === this.active) await this.activate(this.pictures[Math.min(at, this.pictures.length - 1)] ?? null);
    picture.release();
    this.#tell("list", picture);
  }

  /** Announces that a picture's mask, fills or history changed. */
  edited(picture = this.active) {
    this.#tell("edit", picture);
  }

  #tell(type, picture) {
    this.dispatchEvent(new CustomEvent(type, { detail: picture }));
  }
}
