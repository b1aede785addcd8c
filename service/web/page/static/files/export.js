// Export of an edited picture: runs this same script (main.js) in a worker of its own, whose end frees its memory.

import { encoded } from "./export_worker.js";

const LONGEST_START_MS = 5000;

/**
 * Encodes a picture with its fills.
 * @param {import("../editing/picture.js").Picture} picture @param {"png" | "jpeg" | "webp"} format @param {AbortSignal} [cancelled]
 * @returns {Promise<{blob: Blob, exact: boolean}>} exact: every pixel outside the fills is the file's
 */
export function exportPicture(picture, format, cancelled) {
  const job = { file: picture.file, format, patches: picture.patches.map((patch) => patch.plain) };
  const worker = new Worker(import.meta.url, { type: "module" });
  let timer = 0;
  return new Promise((resolve, reject) => {
    cancelled?.addEventListener("abort", () => reject(cancelled.reason));
    cancelled?.throwIfAborted();
    // the worker loads the script from the server; if that is gone, the page itself encodes, and is blocked meanwhile
    const here = () => resolve(encoded(job));
    timer = setTimeout(here, LONGEST_START_MS);
    worker.onmessage = ({ data }) => {
      clearTimeout(timer);
      if (data.result) resolve(data.result);
      else if (data.error) reject(new Error(data.error));
    };
    worker.onerror = ({ message }) => {
      clearTimeout(timer);
      message ? reject(new Error("The picture could not be encoded: too little memory?")) : here();
    };
    worker.postMessage(job);
  }).finally(() => {
    clearTimeout(timer);
    worker.terminate();
  });
}

/** Saves a Blob as a file. */
export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser reads it after the click
}
