// Saving of the edited picture.

import { safeName, stem } from "../files/bytes.js";
import { download, exportPicture, writesLosslessWebp } from "../files/export.js";
import { $ } from "../ui/dom.js";
import { say } from "../ui/status.js";

const EXTENSIONS = { png: "png", jpeg: "jpg", webp: "webp" };

/** Name of the saved file. */
export function resultName(name, format) {
  return `${safeName(stem(name))}-retouched.${EXTENSIONS[format]}`;
}

export class Saving {
  /** @param {import("./workspace.js").Workspace} workspace */
  constructor(workspace) {
    this.workspace = workspace;
    for (const button of document.querySelectorAll("[data-save]")) {
      button.addEventListener("click", () => this.save(button.dataset.save));
    }
    workspace.addEventListener("active", () => this.#offer());
  }

  /** Saves the active picture as a download. @param {"png" | "jpeg" | "webp"} format */
  async save(format) {
    const picture = this.workspace.active;
    if (!picture) return;
    say(`Saving ${picture.name}.`);
    try {
      const { blob, exact } = await exportPicture(picture, format);
      download(blob, resultName(picture.name, format));
      say(format === "jpeg" ? "Saved. JPEG changes every pixel a little." : exact ? "Saved. Outside the fills every pixel is the file's." : "Saved. This kind of file had to be rounded: pixels outside the fills may differ a little.");
    } catch (error) {
      say(error.message, true);
    }
  }

  /** Offers WebP where the browser writes it without loss and nothing of the file is lost: no alpha, no profile. */
  async #offer() {
    const facts = this.workspace.active?.facts;
    const fits = facts?.opaque && !facts.icc && !facts.iccChunk && facts.png?.depth !== 16;
    document.querySelector('[data-save="webp"]').hidden = !fits || !(await writesLosslessWebp());
  }
}
