// Export of an edited picture: the same script as a worker (main.js), one for each, which ends with it and gives its memory back.

import { inspect } from "./inspect.js";

/**
 * Encodes a picture with its fills.
 * @param {import("../editing/picture.js").Picture} picture @param {"png" | "jpeg" | "webp"} format
 * @returns {Promise<{blob: Blob, exact: boolean}>} exact: every pixel outside the fills is the file's
 */
export function exportPicture(picture, format) {
  const worker = new Worker(import.meta.url, { type: "module" });
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => (data.result ? resolve(data.result) : reject(new Error(data.error)));
    worker.onerror = () => reject(new Error("The picture could not be encoded: too little memory?"));
    worker.postMessage({ file: picture.file, format, patches: picture.patches.map((patch) => patch.plain) });
  }).finally(() => worker.terminate());
}

/** Whether this browser writes WebP without loss, found out by looking at what it writes. */
export async function writesLosslessWebp() {
  const canvas = new OffscreenCanvas(8, 8);
  canvas.getContext("2d").fillRect(1, 2, 3, 4);
  const blob = await canvas.convertToBlob({ type: "image/webp", quality: 1 });
  return isLosslessWebp(blob);
}

/** Whether a file is WebP without loss; the browser says only that it is WebP, or falls back to PNG. @param {Blob} blob */
export async function isLosslessWebp(blob) {
  const head = new Uint8Array(await blob.slice(0, 4096).arrayBuffer());
  return inspect(head)?.lossless === true;
}

/** Saves a Blob as a file. */
export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser reads it after the click
}
