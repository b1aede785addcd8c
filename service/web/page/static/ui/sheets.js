// Translating a picture and drawing new ones: forms whose results are shown below them.

import { safeName, stem } from "../files/bytes.js";
import { download } from "../files/export.js";
import { pictures } from "../server/api.js";
import { $, element, figure } from "./dom.js";
import { say } from "./status.js";

const MOST_SHOWN = 32;

export class Sheets {
  /** Key of the model whose file fields are shown. */
  #asked = "";

  /**
   * @param {import("../server/api.js").Api} api @param {import("./busy.js").Busy} busy
   * @param {() => import("../server/models.js").Model | null} model the one chosen for the shown sheet
   * @param {(file: File) => void} edit opens a result for filling
   */
  constructor(api, busy, model, edit) {
    Object.assign(this, { api, busy, model, edit });
    $("translate-form").onsubmit = (event) => {
      event.preventDefault();
      this.#translate();
    };
    $("draw-form").onsubmit = (event) => {
      event.preventDefault();
      this.#draw();
    };
  }

  /** Shows the file fields that the chosen model takes. */
  showParts() {
    const model = this.model();
    if (model?.task !== "translate" || model.key === this.#asked) return; // chosen files stay
    this.#asked = model.key;
    const fields = model.parts.map(({ name, required, description }) =>
      element(
        "label",
        {},
        `${name[0].toUpperCase()}${name.slice(1)}`,
        element("small", { textContent: description }),
        element("input", { type: "file", name, required, accept: "image/png,image/jpeg,image/webp" }),
      ),
    );
    $("translate-form").querySelector(".parts").replaceChildren(...fields);
  }

  /** Puts a dropped file into the first field. @param {File} file */
  drop(file) {
    const form = $("translate-form");
    const transfer = new DataTransfer();
    transfer.items.add(file);
    form.querySelector("input").files = transfer.files;
    form.requestSubmit(); // not while a file is missing
  }

  /** The current request of a sheet, to be copied as code. */
  call(task) {
    const fields = { ...this.#modelField() };
    const files = {};
    if (task === "translate") for (const { name } of this.model()?.parts ?? []) files[name] = this.#file(name)?.name ?? `${name}.png`;
    else Object.assign(fields, this.#drawFields());
    return { task, files, fields };
  }

  async #translate() {
    const fields = { ...this.#modelField(), save: "false" };
    for (const { name } of this.model()?.parts ?? []) {
      const file = this.#file(name);
      if (file) fields[name] = { blob: file, name: file.name };
    }
    const reply = await this.#send("Translating", "v1/translate", fields);
    if (reply) this.#show($("translated"), reply.blobs, () => `${stem(fields.image.name)} translated`);
  }

  async #draw() {
    const fields = { ...this.#modelField(), ...this.#drawFields(), save: "false" };
    const reply = await this.#send("Drawing", "v1/generate", fields);
    if (!reply) return;
    this.#show($("drawn"), reply.blobs, (i) => `seed ${reply.seed}` + (reply.blobs.length > 1 ? `, ${i + 1} of ${reply.blobs.length}` : ""));
  }

  async #send(label, path, fields) {
    const accept = Number(fields.count ?? 1) > 1 ? "application/json" : "image/png";
    const reply = await this.busy.run(label, (call) => call(async (options) => pictures(await this.api.post(path, fields, { ...options, accept }))));
    if (reply) say("Done.");
    return reply;
  }

  #modelField() {
    const model = this.model();
    return model ? { model: model.key } : {};
  }

  #drawFields() {
    const seed = $("seed").value.trim();
    return { count: $("count").value || "1", ...(seed ? { seed } : {}) };
  }

  #file(name) {
    return $("translate-form").querySelector(`input[name="${CSS.escape(name)}"]`)?.files[0];
  }

  #show(list, blobs, caption) {
    const figures = blobs.map((blob, i) => this.#figure(blob, caption(i)));
    list.prepend(...figures);
    for (const old of [...list.children].slice(MOST_SHOWN)) {
      URL.revokeObjectURL(old.querySelector("img").src);
      old.remove();
    }
    figures[0].querySelector("button").focus({ preventScroll: true });
  }

  #figure(blob, caption) {
    const name = `${safeName(caption)}.png`;
    return figure(
      element("img", { src: URL.createObjectURL(blob), alt: caption }),
      caption,
      element("button", { textContent: "Edit", onclick: () => this.edit(new File([blob], name, { type: blob.type })) }),
      element("button", { textContent: "Save", onclick: () => download(blob, name) }),
    );
  }
}
