// Saving of the edited picture.

import { safeName, stem } from "../files/bytes.js";
import { download, exportPicture } from "../files/export.js";
import { writesLosslessWebp } from "../files/export_worker.js";
import { $ } from "../ui/dom.js";
import { say } from "../ui/status.js";

const EXTENSIONS = { png: "png", jpeg: "jpg", webp: "webp" };

/** Name of the saved file. */
export function resultName(name, format) {
  return `${safeName(stem(name))}-retouched.${EXTENSIONS[format]}`;
}

/** A sentence that says whether the pixels outside the fills are unchanged. */
function exactness(format, exact) {
  if (format !== "jpeg") return exact ? "Outside the fills, no pixel has changed." : "This kind of file cannot be kept exactly: pixels outside the fills may differ a little.";
  return exact ? "Only the fills and the blocks of pixels that they touch were encoded again." : "JPEG changes every pixel a little.";
}

export class Saving {
  /** @param {import("./workspace.js").Workspace} workspace */
  constructor(workspace) {
    this.workspace = workspace;
    for (const button of document.querySelectorAll("[data-save]")) {
      button.onclick = () => this.save(button.dataset.save);
    }
    workspace.addEventListener("active", () => this.#offer());
  }

  /** Saves the active picture as a download, or copies it. @param {"png" | "jpeg" | "webp" | "copy"} format */
  async save(format) {
    const picture = this.workspace.active;
    if (!picture) return say("Open a photograph first.", true);
    if (format === "copy") return this.#copy(picture);
    say(`Saving ${picture.name}…`);
    try {
      const { blob, exact } = await exportPicture(picture, format);
      download(blob, resultName(picture.name, format));
      say(`Saved. ${exactness(format, exact)}`);
    } catch (error) {
      say(error.message, true);
    }
  }

  async #copy(picture) {
    say(`Copying ${picture.name}…`);
    try {
      const blob = exportPicture(picture, "png").then((made) => made.blob);
      await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
      say("Copied.");
    } catch {
      say("This browser cannot copy pictures here: save it instead.", true); // without https the clipboard is closed to pages
    }
  }

  /** Offers WebP where the browser writes it without loss and nothing of the file is lost: no alpha, no profile. */
  async #offer() {
    const facts = this.workspace.active?.facts;
    const fits = facts?.opaque && !facts.icc && !facts.iccChunk && facts.png?.depth !== 16;
    document.querySelector('[data-save="webp"]').hidden = !fits || !(await writesLosslessWebp());
  }
}
