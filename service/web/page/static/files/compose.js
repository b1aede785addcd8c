// The edited picture as rows, for the PNG encoder: the original's own samples, with the fills written over them.

import { RAW } from "../editing/raw.js";
import { kindOf, readPngRows } from "./png_reader.js";
import { pixelBytes } from "./png_writer.js";

const STRIP_PIXELS = 2 ** 20;

/** @typedef {{x: number, y: number, width: number, height: number, pixels: Uint8ClampedArray, inside: Uint8Array}} PlainPatch */

/**
 * The picture's rows, the kind of PNG that holds them, and whether every pixel outside the fills is exactly the file's.
 * @param {Blob} file @param {import("./inspect.js").Facts} facts @param {PlainPatch[]} patches
 */
export async function composed(file, facts, patches) {
  const { kind, rows, exact } = await original(file, facts);
  return { kind, exact, rows: withPatches(kind, rows, patches) };
}

async function original(file, facts) {
  if (facts.format === "png" && !facts.png.interlaced && facts.orientation === 1) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    return { kind: kindOf(bytes), rows: readPngRows(bytes), exact: true };
  }
  const bitmap = await createImageBitmap(file, RAW);
  const kind = { width: bitmap.width, height: bitmap.height, colour: facts.opaque ? 2 : 6, depth: 8 };
  // a canvas keeps opaque pixels unchanged, but multiplies by alpha and divides again, which rounds
  return { kind, rows: canvasRows(bitmap, facts.opaque), exact: facts.opaque && facts.png?.depth !== 16 };
}

async function* canvasRows(bitmap, opaque) {
  const { width, height } = bitmap;
  const lines = Math.max(1, Math.floor(STRIP_PIXELS / width));
  const canvas = new OffscreenCanvas(width, Math.min(lines, height));
  const context = canvas.getContext("2d", { willReadFrequently: true });
  for (let y = 0; y < height; y += lines) {
    const count = Math.min(lines, height - y);
    context.clearRect(0, 0, width, count);
    context.drawImage(bitmap, 0, -y);
    const { data } = context.getImageData(0, 0, width, count);
    yield opaque ? withoutAlpha(data) : new Uint8Array(data.buffer);
  }
  bitmap.close();
}

function withoutAlpha(data) {
  const out = new Uint8Array((data.length / 4) * 3);
  for (let from = 0, to = 0; from < data.length; from += 4, to += 3) {
    out[to] = data[from];
    out[to + 1] = data[from + 1];
    out[to + 2] = data[from + 2];
  }
  return out;
}

async function* withPatches(kind, rows, patches) {
  const stride = kind.width * pixelBytes(kind);
  let top = 0;
  for await (const block of rows) {
    const count = block.length / stride;
    for (const patch of patches) {
      const from = Math.max(top, patch.y);
      const to = Math.min(top + count, patch.y + patch.height);
      for (let y = from; y < to; y++) writeRow(kind, patch, y - patch.y, block.subarray((y - top) * stride));
    }
    top += count;
    yield block;
  }
}

function writeRow({ colour, depth }, patch, row, line) {
  const bpp = pixelBytes({ colour, depth });
  const size = depth / 8;
  for (let x = 0; x < patch.width; x++) {
    const from = row * patch.width + x;
    if (!patch.inside[from]) continue;
    coloursOf(colour, patch.pixels, from * 4).forEach((value, c) => {
      // 8 bits are widened to 16 by repeating them: 255 becomes 65535
      line.fill(value, (patch.x + x) * bpp + c * size, (patch.x + x) * bpp + (c + 1) * size);
    });
  }
}

function coloursOf(colour, pixels, at) {
  const [red, green, blue, alpha] = pixels.subarray(at, at + 4);
  if (colour === 2) return [red, green, blue];
  if (colour === 6) return [red, green, blue, alpha];
  const grey = red === green && green === blue ? red : Math.round(0.299 * red + 0.587 * green + 0.114 * blue);
  return colour === 0 ? [grey] : [grey, alpha];
}
