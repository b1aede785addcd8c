// Export of an edited picture: the same script as a worker (main.js), one for each, which ends with it and gives its memory back.

import { encoded } from "./export_worker.js";

/**
 * Encodes a picture with its fills.
 * @param {import("../editing/picture.js").Picture} picture @param {"png" | "jpeg" | "webp"} format
 * @returns {Promise<{blob: Blob, exact: boolean}>} exact: every pixel outside the fills is the file's
 */
export function exportPicture(picture, format) {
  const job = { file: picture.file, format, patches: picture.patches.map((patch) => patch.plain) };
  const worker = new Worker(import.meta.url, { type: "module" });
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => (data.result ? resolve(data.result) : reject(new Error(data.error)));
    // the script is asked for again: where the server is gone, work is saved all the same, and the page waits meanwhile
    worker.onerror = ({ message }) =>
      message ? reject(new Error("The picture could not be encoded: too little memory?")) : resolve(encoded(job));
    worker.postMessage(job);
  }).finally(() => worker.terminate());
}

/** Saves a Blob as a file. */
export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser reads it after the click
}
