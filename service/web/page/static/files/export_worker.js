// The worker that encodes an edited picture, so that the page stays usable meanwhile.

import { RAW } from "../editing/raw.js";
import { ascii, asciiBytes, through } from "./bytes.js";
import { composed } from "./compose.js";
import { inspect, joined } from "./inspect.js";
import { writeFills } from "./jpeg/blocks.js";
import { withMetadata } from "./jpeg/metadata.js";
import { readJpeg } from "./jpeg/reader.js";
import { writeJpeg } from "./jpeg/writer.js";
import { writePng } from "./png_writer.js";
import { Patch } from "../editing/picture.js";

const JPEG_QUALITY = 0.95;

/** Answers each message first with an empty one, to show that the worker runs, and then with the encoded picture. */
export function serveExports() {
  self.onmessage = async ({ data }) => {
    self.postMessage({});
    try {
      self.postMessage({ result: await encoded(data) });
    } catch (error) {
      self.postMessage({ error: error.message });
    }
  };
}

/** A picture's file with its fills, in a format. @returns {Promise<{blob: Blob, exact: boolean}>} */
export async function encoded({ file, patches, format }) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const facts = inspect(bytes);
  const own = format === "jpeg" && facts.format === "jpeg" && ownBlocks(bytes, patches, facts.orientation);
  if (own) return { blob: new Blob([withMetadata(own, facts, false)], { type: "image/jpeg" }), exact: true };
  if (facts.icc && ascii(facts.icc, 16, 20) !== "RGB ") facts.icc = null; // for CMYK or grey; browsers decode to RGB
  if (format === "png") {
    const { kind, rows, exact } = await composed(file, facts, patches);
    return { blob: await writePng(kind, rows, await profileChunks(facts)), exact };
  }
  const canvas = await drawn(file, patches, format === "jpeg" ? "#fff" : null);
  if (format === "jpeg") {
    const made = await canvas.convertToBlob({ type: "image/jpeg", quality: JPEG_QUALITY });
    const written = withMetadata(new Uint8Array(await made.arrayBuffer()), { ...facts, icc: await profileOf(facts) }, true);
    return { blob: new Blob([written], { type: "image/jpeg" }), exact: false };
  }
  const blob = await canvas.convertToBlob({ type: "image/webp", quality: 1 });
  if (!(await isLosslessWebp(blob))) throw new Error("This browser cannot write lossless WebP.");
  return { blob, exact: facts.opaque };
}

/** A JPEG with the original's blocks outside the fills; null for a kind of JPEG that cannot be parsed here. */
function ownBlocks(bytes, patches, orientation) {
  try {
    const frame = readJpeg(bytes);
    writeFills(frame, patches, orientation);
    return joined(writeJpeg(frame));
  } catch {
    return null;
  }
}

/** @param {string | null} ground colour under transparent pixels, which JPEG cannot hold */
async function drawn(file, patches, ground) {
  const bitmap = await createImageBitmap(file, RAW);
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  for (const patch of patches) new Patch(patch, patch.pixels, patch.inside).draw(context, patch.x, patch.y);
  if (ground) {
    context.globalCompositeOperation = "destination-over";
    context.fillStyle = ground;
    context.fillRect(0, 0, canvas.width, canvas.height);
  }
  return canvas;
}

/** The original's colour profile as chunks of a PNG; the pixels are the file's own values, which need it. */
async function profileChunks({ icc, iccChunk }) {
  if (iccChunk) return [{ type: "iCCP", data: iccChunk }];
  if (!icc) return [];
  return [{ type: "iCCP", data: joined([asciiBytes("ICC\0\0"), await gathered(through(new CompressionStream("deflate"), [icc]))]) }];
}

/** The original's profile uncompressed, as formats other than PNG store it. */
async function profileOf({ icc, iccChunk }) {
  if (!iccChunk) return icc;
  const packed = iccChunk.subarray(iccChunk.indexOf(0) + 2);
  return gathered(through(new DecompressionStream("deflate"), [packed])).catch(() => null); // a damaged one is left out
}

async function gathered(stream) {
  const parts = [];
  for await (const piece of stream) parts.push(piece);
  return joined(parts);
}

/** Whether this browser writes lossless WebP, found out by inspecting its output. */
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
