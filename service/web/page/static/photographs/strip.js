// The film strip: several photographs, one mask for all of them, and their results as one ZIP.

import { replace } from "../editing/morphology.js";
import { exportPicture, download } from "../files/export.js";
import { zip } from "../files/zip.js";
import { $, disable, element, focusNear, icon, thumbnail } from "../ui/dom.js";
import { explained } from "../ui/busy.js";
import { resultName } from "./saving.js";
import { grouped, say } from "../ui/status.js";

const THUMBNAIL_SIDE = 54;

const isOpen = (picture) => !picture.closing.signal.aborted;

export class Strip {
  /** @type {WeakMap<import("../editing/picture.js").Picture, {plain: HTMLCanvasElement, shown: HTMLCanvasElement, patches: object[]}>} without and with the fills, and which fills */
  #thumbnails = new WeakMap();

  /** @param {import("./workspace.js").Workspace} workspace @param {import("../ui/fill_control.js").FillControl} fills @param {import("../ui/busy.js").Busy} busy */
  constructor(workspace, fills, busy) {
    Object.assign(this, { workspace, fills, busy });
    workspace.addEventListener("list", () => this.#update());
    workspace.addEventListener("active", () => this.#update());
    workspace.addEventListener("edit", ({ detail }) => this.#drawFills(detail));
    $("mask-for-all").onclick = () => this.fillAll();
    $("zip").onclick = () => this.saveAll();
    $("close").onclick = () => this.close(workspace.active);
    this.#update();
  }

  /** Fills every photograph under the active one's mask, scaled to its size. */
  async fillAll() {
    const { active, pictures } = this.workspace;
    if (!active?.mask.area) {
      const how = $("instant").checked ? ", without Fill each stroke" : ""; // each fill clears the mask
      return say(`Paint a mask first${how}: it will be used for all photographs.`, true);
    }
    const source = { data: active.mask.data.slice(), width: active.mask.width, height: active.mask.height };
    const failures = [];
    const done = await this.busy.run("Filling all", async (call, name) => {
      for (const [i, picture] of pictures.entries()) {
        name(`Filling ${i + 1} of ${pictures.length}`);
        const failure = await this.#fillOne(picture, source, call);
        if (failure) failures.push({ name: picture.name, reason: `: ${explained(failure)}` });
      }
      return !failures.length;
    });
    if (done === null) return null;
    const { length } = pictures.filter(isOpen);
    return say(failures.length ? `${failures.length} failed. ${grouped(failures)}` : `${length} photograph${length === 1 ? " is" : "s are"} filled.`, failures.length > 0);
  }

  async #fillOne(picture, { data, width, height }, call) {
    try {
      await picture.load();
      await picture.rest();
      picture.edit((mask) => replace(mask, data, width, height));
      const joinTo = picture.history.last;
      await this.fills.filled(picture, this.fills.single, call, joinTo);
      return null;
    } catch (error) {
      if (!isOpen(picture)) return null;
      if (error.name === "AbortError") throw error;
      return error;
    }
  }

  /** Saves all photographs, exact PNGs, as one file. */
  async saveAll() {
    const { pictures } = this.workspace;
    const packed = await this.busy.run("Saving all", async (_, name, cancelled) => {
      const files = [];
      for (const [i, picture] of pictures.entries()) {
        name(`Saving ${i + 1} of ${pictures.length}`);
        files.push({ name: resultName(picture.name, "png"), blob: (await exportPicture(picture, "png", cancelled)).blob });
      }
      return zip(files, cancelled);
    });
    if (!packed) return;
    download(packed, "retouched.zip");
    say(`Saved ${pictures.length} photographs.`);
  }

  /** Closes a photograph, after a question if work would be lost. @param {import("../editing/picture.js").Picture | null} picture */
  close(picture) {
    if (!picture || (picture.history.canUndo && !confirm(`Close ${picture.name}? Your painting and fills on it will be lost.`))) return;
    this.workspace.remove(picture);
    say(`${picture.name} is closed.`, false, false);
  }

  #update() {
    const { pictures, active } = this.workspace;
    const strip = $("strip");
    const focused = strip.contains(document.activeElement);
    disable($("close"), !active);
    strip.hidden = pictures.length < 2;
    strip.querySelector("ul").replaceChildren(...pictures.map((picture) => this.#item(picture, picture === active)));
    strip.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    // the button that was pressed is gone, or has nothing more to do
    if (focused || (document.activeElement === $("close") && !active)) focusNear();
  }

  #item(picture, current) {
    const choose = element("button", { ariaLabel: picture.name, title: picture.name, ariaCurrent: current }, this.#thumbnail(picture));
    choose.onclick = () => this.workspace.activate(picture);
    const remove = element("button", { className: "icon", ariaLabel: `Close ${picture.name}` }, icon("close"));
    remove.onclick = () => this.close(picture);
    return element("li", {}, choose, remove);
  }

  #thumbnail(picture) {
    const source = picture.preview ?? picture.bitmap;
    if (!this.#thumbnails.has(picture) && source) {
      const plain = thumbnail(source, picture.width, picture.height, THUMBNAIL_SIDE);
      const shown = element("canvas", { width: plain.width, height: plain.height });
      this.#thumbnails.set(picture, { plain, shown, patches: null });
      this.#drawFills(picture);
    }
    return this.#thumbnails.get(picture)?.shown ?? element("canvas", { width: 1, height: 1 });
  }

  #drawFills(picture) {
    const drawn = this.#thumbnails.get(picture);
    if (!drawn || drawn.patches === picture.patches) return;
    const { plain, shown } = drawn;
    const [x, y] = [shown.width / picture.width, shown.height / picture.height];
    const context = shown.getContext("2d");
    context.clearRect(0, 0, shown.width, shown.height);
    context.drawImage(plain, 0, 0);
    for (const patch of picture.patches) patch.draw(context, patch.x * x, patch.y * y, patch.width * x, patch.height * y);
    drawn.patches = picture.patches;
  }
}
