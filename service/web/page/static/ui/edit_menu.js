// Undo and redo, changes of the whole mask, and the mask as a file.

import { clear, grow, invert, replace, shrink, writeSent } from "../editing/morphology.js";
import { safeName, stem } from "../files/bytes.js";
import { download } from "../files/export.js";
import { maskPng } from "../files/png_writer.js";
import { $, disable } from "./dom.js";
import { say } from "./status.js";

/** Brightness from which a pixel of an opened mask is filled, as /v1/inpaint reads it. */
const THRESHOLD = 128;

const EMPTY = "Nothing is painted: the mask is empty.";
const CHANGES = { grow, shrink, invert, clear };

export class EditMenu {
  /** @param {import("../photographs/workspace.js").Workspace} workspace @param {import("./busy.js").Busy} busy @param {import("./painting.js").Painting} painting */
  constructor(workspace, busy, painting) {
    Object.assign(this, { workspace, busy, painting });
    $("undo").onclick = () => this.undo();
    $("redo").onclick = () => this.redo();
    for (const button of document.querySelectorAll("[data-mask]")) {
      button.onclick = () => this.run(button.dataset.mask);
    }
    $("pick-mask").onchange = async ({ target }) => {
      const [file] = target.files;
      target.value = "";
      if (file) await this.#import(file);
    };
    for (const type of ["edit", "active"]) workspace.addEventListener(type, () => this.#update());
  }

  undo() {
    this.painting.lift();
    const { active } = this.workspace;
    if (active && this.busy.subject === active) this.busy.cancel(); // work for other pictures continues
    this.#travel((history) => history.undo(), true);
  }

  redo() {
    this.painting.lift();
    this.#travel((history) => history.redo(), false);
  }

  /** Changes the whole mask. @param {"grow" | "shrink" | "invert" | "clear" | "again" | "import" | "export"} what */
  run(what) {
    const picture = this.workspace.active;
    if (!picture) return say("Open a photograph first.", true);
    this.painting.lift();
    if (what === "import") $("pick-mask").click();
    else if (what === "export") this.#export(picture);
    else if (what === "again") this.#again(picture);
    else if (!picture.mask.area && (what === "grow" || what === "shrink")) say(EMPTY, true);
    else {
      // a visible step: a 400th of the picture, at least two pixels
      const radius = Math.max(2, Math.round(Math.max(picture.width, picture.height) / 400));
      if (picture.edit((mask) => CHANGES[what](mask, radius))) this.workspace.edited();
      say(`Mask: ${what}.`, false, false);
    }
    return null;
  }

  /** Paints the mask of the last fill once more, to be filled in another way. */
  #again(picture) {
    const patch = picture.patches.at(-1);
    if (!patch) return say("Nothing has been filled here yet.", true);
    if (!picture.edit((mask) => writeSent(mask, patch, patch.inside, 1))) return null;
    this.workspace.edited();
    return this.painting.onStroke();
  }

  #travel(step, undo) {
    const picture = this.workspace.active;
    const entry = picture && step(picture.history);
    if (!entry) return;
    picture.apply(entry, undo);
    say(undo ? "Undone." : "Redone.", false, false);
    this.workspace.edited();
  }

  #update() {
    const history = this.workspace.active?.history;
    disable($("undo"), !history?.canUndo);
    disable($("redo"), !history?.canRedo);
  }

  async #import(file) {
    const picture = this.workspace.active;
    const bitmap = await createImageBitmap(file).catch(() => null);
    if (!picture || !bitmap) return say(`${file.name} cannot be read as a mask.`, true);
    const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d", { willReadFrequently: true });
    context.drawImage(bitmap, 0, 0);
    const { data } = context.getImageData(0, 0, bitmap.width, bitmap.height);
    const bytes = new Uint8Array(bitmap.width * bitmap.height);
    for (let i = 0; i < bytes.length; i++) bytes[i] = brightness(data, i * 4) >= THRESHOLD ? 1 : 0;
    await picture.rest();
    picture.edit((mask) => replace(mask, bytes, bitmap.width, bitmap.height));
    this.workspace.edited(picture);
    const scaled = bitmap.width === picture.width && bitmap.height === picture.height ? "" : ", scaled to the picture";
    return say(picture.mask.area ? `${file.name} is the mask now${scaled}.` : `${file.name} has no white: nothing would be filled.`, !picture.mask.area);
  }

  async #export({ mask, name }) {
    if (!mask.area) return say(EMPTY, true);
    return download(await maskPng(mask.data, mask.width, mask.height), maskName(name));
  }
}

/** Name under which the mask of a picture is saved. */
export function maskName(name) {
  return `${safeName(stem(name))}-mask.png`;
}

/** Luma of ITU-R BT.601, as the server computes it. */
function brightness(data, at) {
  return Math.round(0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2]);
}
