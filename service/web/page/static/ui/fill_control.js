// Filling: when to fill, with which model, and the choice among several variants.

import { applied, prepared, requested } from "../editing/filling.js";
import { widened } from "../editing/window.js";
import { $, disable, element, hide, thumbnail } from "./dom.js";
import { prefer, preferences } from "./preferences.js";
import { say } from "./status.js";

export class FillControl {
  /** Pictures to be filled after the work that is running. @type {Set<import("../editing/picture.js").Picture>} */
  #late = new Set();
  #waiting = false; // for a model
  /** The fill whose variants the buttons show. @type {import("../editing/history.js").Change | undefined} */
  #offered;
  /** Called when something is to be filled and no model is known. */
  onWaiting = () => {};
  /** Called with a fill whose variants are shown from now on. @type {(patch: import("../editing/picture.js").Patch) => void} */
  onOffer = () => {};

  /**
   * @param {import("../server/api.js").Api} api @param {import("./busy.js").Busy} busy
   * @param {import("../photographs/workspace.js").Workspace} workspace @param {() => import("../server/models.js").Model | null} model
   */
  constructor(api, busy, workspace, model) {
    Object.assign(this, { api, busy, workspace, model });
    for (const id of ["instant", "texture"]) {
      $(id).checked = preferences()[id];
      $(id).onchange = () => {
        prefer({ [id]: $(id).checked });
        this.update();
      };
    }
    $("fill").onclick = () => this.fill();
    busy.onEnd = (failed) => this.#afterWork(failed);
    for (const type of ["edit", "active"]) {
      workspace.addEventListener(type, () => {
        this.#offer();
        this.update();
      });
    }
    this.update();
  }

  /** What the person chose, as fields of the form. */
  get choice() {
    const model = this.model();
    const samples = model?.draws ? $("samples").value : "1";
    const texture = model?.textures && $("texture").checked;
    return { ...(model ? { model: model.key } : {}), ...(samples === "1" ? {} : { samples }), ...(texture ? { texture: "copied" } : {}) };
  }

  /** The same for one fill, where nobody would choose among the variants of each photograph. */
  get single() {
    return { ...this.choice, samples: "1" };
  }

  update() {
    const model = this.model();
    disable($("fill"), !this.workspace.active?.mask.area || !model);
    $("fill").textContent = model ? "Fill" : "No model yet";
    $("samples-field").hidden = !model?.draws;
    $("texture-field").hidden = !model?.textures;
    if (this.#waiting && model && $("instant").checked) this.fill();
  }

  /** After each stroke: fills at once in that mode. */
  afterStroke() {
    if ($("instant").checked) this.fill(this.workspace.active.history.last);
  }

  /** Fills the pictures that wait, one after the other, except a picture whose fill has failed. */
  #afterWork(failed) {
    if (this.busy.running) return; // new work has begun immediately
    const late = [...this.#late].filter((picture) => picture !== failed && picture.mask.area && this.workspace.pictures.includes(picture));
    this.#late = new Set(late.slice(1));
    if (late.length) this.fill(null, late[0]);
  }

  /** Fills a picture's mask, after the work that is running. @param {import("../editing/history.js").Entry | null} joinTo the stroke that is one step with its fill */
  async fill(joinTo = null, picture = this.workspace.active) {
    if (!picture?.mask.area) return;
    if (this.busy.running) {
      this.#late.add(picture);
      say("This is filled next.", false, !joinTo && picture !== this.busy.subject); // a stroke is seen to wait
      return;
    }
    this.#waiting = !this.model();
    if (this.#waiting) {
      say("No model is ready yet.");
      return this.onWaiting();
    }
    const done = await this.busy.run("Filling", (call) => this.filled(picture, this.choice, call, joinTo));
    this.update();
    if (!done) return;
    const seed = done.seed ? ` Seed ${done.seed}.` : "";
    const shown = picture === this.workspace.active;
    const { length } = done.patches;
    const elsewhere = `Filled. ${picture.name} has ${length} variants to choose from.`;
    const text = length < 2 ? "Filled." : shown ? `${length} variants: choose one.` : elsewhere;
    // a visible fill is only announced to screen readers: a message would cover the picture
    say(text + seed, false, !shown || seed !== "");
  }

  /** Fills a picture within `Busy.run`. */
  async filled(picture, choice, call, joinTo) {
    this.busy.subject = picture;
    try {
      await picture.load(); // another picture may be shown by now
      await picture.rest();
      const job = await prepared(picture);
      const reply = await call(async (options) => {
        const made = await requested(this.api, job, choice, options);
        await picture.rest();
        options.signal.throwIfAborted(); // cancelled or undone after the reply came
        return made;
      }, picture.closing.signal);
      applied(picture, job, reply.patches, joinTo);
      this.workspace.edited(picture);
      return reply;
    } finally {
      if (picture !== this.workspace.active) picture.release();
    }
  }

  /** Shows the variants of the fill that is the last step of the shown picture. */
  #offer() {
    const picture = this.workspace.active;
    const change = picture?.history.last?.changes.find(({ variants }) => variants?.length > 1);
    const isNew = change && change !== this.#offered;
    if (isNew) $("variants").replaceChildren(...change.variants.map((patch, i) => this.#variant(picture, change, patch, i)));
    this.#offered = change;
    hide($("variants"), !change);
    if (isNew) this.onOffer(change.patch);
  }

  #variant(picture, change, patch, i) {
    const area = widened(patch, Math.round(Math.max(patch.width, patch.height) / 4) + 8, picture);
    const shown = picture.render(area);
    patch.draw(shown.getContext("2d"), patch.x - area.x, patch.y - area.y);
    const button = element("button", { ariaLabel: `Variant ${i + 1}`, ariaPressed: patch === change.patch }, thumbnail(shown, shown.width, shown.height, 84));
    button.onclick = () => {
      picture.patches = picture.patches.map((other) => (other === change.patch ? patch : other));
      change.patch = patch;
      for (const other of $("variants").children) other.ariaPressed = other === button;
      this.workspace.edited(picture);
    };
    return button;
  }
}
