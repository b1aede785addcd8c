// A picture being edited: its file, its decoded pixels, and the fills that lie over them as patches.
//
// The decoded pixels are never changed: undoing a fill removes its patch, and an export copies the original outside them.

import { copied, fileError, stem } from "../files/bytes.js";
import { inspect } from "../files/inspect.js";
import { History } from "./history.js";
import { Mask } from "./mask.js";
import { RAW } from "./raw.js";

/** A picture larger than this is drawn from a smaller copy while it is zoomed out. */
const PREVIEW_SIDE = 2560;

/** A random id; crypto.randomUUID is missing where the page comes over plain HTTP from another machine. */
const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16)).join("-");

/** The pixels of a fill inside its mask, with their position in the picture. */
export class Patch {
  /** @param {import("./mask.js").Rect} rect @param {Uint8ClampedArray} pixels RGBA @param {Uint8Array} inside 1 in the mask */
  constructor(rect, pixels, inside, id = newId()) {
    Object.assign(this, rect);
    this.id = id;
    this.pixels = pixels;
    this.inside = inside;
    this.canvas = canvasOf(pixels, rect);
    if (inside.some((set, i) => set && pixels[i * 4 + 3] < 255)) {
      this.hole = canvasOf(pixels.map((_, i) => (i % 4 === 3 ? 255 * inside[i >> 2] : 0)), rect);
    }
  }

  get bytes() {
    return this.inside.length * (this.hole ? 13 : 9); // pixels, their canvases and the mask
  }

  /** Draws it and clears the pixels below, which would otherwise show through a half-transparent fill. */
  draw(context, x, y, width = this.width, height = this.height) {
    if (this.hole) {
      context.globalCompositeOperation = "destination-out";
      context.drawImage(this.hole, x, y, width, height);
      context.globalCompositeOperation = "source-over";
    }
    context.drawImage(this.canvas, x, y, width, height);
  }

  /** A copy without the canvases, for a worker or a store. */
  get plain() {
    const { id, x, y, width, height, pixels, inside } = this;
    return { id, x, y, width, height, pixels, inside };
  }
}

async function factsOf(file) {
  return inspect(new Uint8Array(await file.arrayBuffer()));
}

/** A file in any format that the browser decodes as PNG: its first frame, in sRGB. @returns {Promise<Blob>} */
async function stillPng(file) {
  const bitmap = await createImageBitmap(file);
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  bitmap.close();
  return canvas.convertToBlob();
}

function canvasOf(pixels, { width, height }) {
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext("2d").putImageData(new ImageData(pixels, width, height), 0, 0);
  return canvas;
}

export class Picture {
  /** @type {ImageBitmap | null} the decoded file; null while another picture is shown */
  bitmap = null;
  /** @type {ImageBitmap | null} the smaller copy */
  preview = null;
  /** @type {Patch[]} fills, the latest on top */
  patches = [];
  history = new History();
  /** The name of the file from which this one was converted; empty for none. */
  origin = "";
  /** Aborts work for the picture when it is closed. */
  closing = new AbortController();

  /** @param {Blob} file @param {string} name @param {import("../files/inspect.js").Facts} facts */
  constructor(file, name, facts, size, id) {
    this.id = id;
    this.file = file;
    this.name = name;
    this.facts = facts;
    this.width = size.width;
    this.height = size.height;
    this.mask = new Mask(size.width, size.height);
  }

  /** Opens a file. If the browser cannot decode it, throws an Error whose message can be shown to people. */
  static async open(chosen, name, id = newId()) {
    let file = await copied(chosen, name);
    try {
      let facts = await factsOf(file);
      const foreign = !facts || facts.animated; // the server would not take it
      if (foreign) {
        file = await stillPng(file);
        facts = await factsOf(file);
      }
      const bitmap = await createImageBitmap(file, RAW);
      const picture = new Picture(file, foreign ? `${stem(name)}.png` : name, facts, bitmap, id);
      if (foreign) picture.origin = name;
      await picture.#show(bitmap);
      return picture;
    } catch {
      throw fileError(name, " cannot be opened: damaged, or in a format that this browser does not know. Save a copy as JPEG or PNG.");
    }
  }

  /** Decodes the file again after `release`. */
  async load() {
    if (!this.bitmap) await this.#show(await createImageBitmap(this.file, RAW));
  }

  /** Frees the decoded pixels; mask, patches and history stay. */
  release() {
    this.bitmap?.close();
    this.preview?.close();
    this.bitmap = this.preview = null;
  }

  async #show(bitmap) {
    const scale = PREVIEW_SIDE / Math.max(bitmap.width, bitmap.height);
    if (scale < 0.8) {
      const resizeWidth = Math.max(1, Math.round(bitmap.width * scale));
      const resizeHeight = Math.max(1, Math.round(bitmap.height * scale));
      this.preview = await createImageBitmap(bitmap, { resizeWidth, resizeHeight, resizeQuality: "medium" });
    }
    this.bitmap = bitmap;
  }

  /** A part of the picture with its fills, in its own size. @param {import("./mask.js").Rect} rect */
  render(rect) {
    const canvas = new OffscreenCanvas(rect.width, rect.height);
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(this.bitmap, -rect.x, -rect.y);
    for (const patch of this.patches) patch.draw(context, patch.x - rect.x, patch.y - rect.y);
    return canvas;
  }

  /** Undoes or redoes an entry of the history. */
  apply({ changes }, undo) {
    for (const { diff, patch } of undo ? [...changes].reverse() : changes) {
      if (diff) this.mask.toggle(diff);
      if (patch && undo) this.patches = this.patches.filter((other) => other.id !== patch.id);
      else if (patch) this.patches = [...this.patches, patch];
    }
  }

  /** Resolves when no stroke is in progress: a mask has one edit at a time. */
  async rest() {
    while (this.mask.before) await new Promise(requestAnimationFrame);
  }

  /** Runs an edit of the mask and records it; false if it changed nothing. @param {(mask: Mask) => void} edit */
  edit(edit) {
    this.mask.begin();
    edit(this.mask);
    return this.record();
  }

  /** Records the edit of the mask in progress; false if it changed nothing. */
  record() {
    const diff = this.mask.commit();
    if (diff) this.history.push({ changes: [{ diff }] });
    return diff !== null;
  }
}
