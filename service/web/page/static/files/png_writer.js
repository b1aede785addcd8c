// A PNG encoder that takes rows and returns a Blob, so that a picture of 50 megapixels is never in memory twice.

import { asciiBytes, crc32, through, u32 } from "./bytes.js";

const SIGNATURE = Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a);
/** Number of samples per pixel, by colour type; a palette has one, the index. */
export const CHANNELS = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 };

/**
 * @typedef {object} Kind
 * @property {number} width
 * @property {number} height
 * @property {0 | 2 | 4 | 6} colour PNG's colour type: grey, RGB, grey and alpha, RGBA
 * @property {8 | 16} depth bits a sample
 */

/**
 * Encodes a PNG.
 * @param {Kind} kind
 * @param {AsyncIterable<Uint8Array>} rows whole rows, one or several at a time; 16-bit samples big-endian
 * @param {{type: string, data: Uint8Array}[]} chunks that go before the pixels, such as iCCP
 * @returns {Promise<Blob>}
 */
export async function writePng(kind, rows, chunks = []) {
  const header = new Uint8Array(13);
  header.set(u32(kind.width), 0);
  header.set(u32(kind.height), 4);
  header.set([kind.depth, kind.colour], 8);
  const parts = [SIGNATURE, ...chunk("IHDR", header)];
  for (const { type, data } of chunks) parts.push(...chunk(type, data));
  for await (const packed of through(new CompressionStream("deflate"), filtered(kind, rows))) {
    parts.push(...chunk("IDAT", packed));
  }
  parts.push(...chunk("IEND", new Uint8Array(0)));
  return new Blob(parts, { type: "image/png" });
}

/** Bytes of a pixel. @param {Kind} kind */
export function pixelBytes({ colour, depth }) {
  return (CHANNELS[colour] * depth) / 8;
}

function chunk(type, data) {
  const name = asciiBytes(type);
  return [u32(data.length), name, data, u32(crc32(data, crc32(name)))];
}

/** Rows with Paeth's filter, which suits photographs. One filter for all costs one pass instead of five. */
async function* filtered(kind, rows) {
  const bpp = pixelBytes(kind);
  const stride = kind.width * bpp;
  let above = new Uint8Array(stride);
  for await (const block of rows) {
    const count = block.length / stride;
    const out = new Uint8Array(count * (stride + 1));
    for (let row = 0; row < count; row++) {
      const line = block.subarray(row * stride, (row + 1) * stride);
      filterRow(line, above, bpp, out.subarray(row * (stride + 1), (row + 1) * (stride + 1)));
      above = line;
    }
    above = above.slice(); // the block's memory may be used again
    yield out;
  }
}

function filterRow(line, above, bpp, out) {
  out[0] = 4;
  for (let i = 0; i < bpp; i++) out[i + 1] = line[i] - above[i];
  for (let i = bpp; i < line.length; i++) out[i + 1] = line[i] - paeth(line[i - bpp], above[i], above[i - bpp]);
}

/** Paeth's predictor (PNG, 9.4). */
export function paeth(left, up, corner) {
  const byLeft = Math.abs(up - corner);
  const byUp = Math.abs(left - corner);
  const byCorner = Math.abs(left + up - 2 * corner);
  if (byLeft <= byUp && byLeft <= byCorner) return left;
  return byUp <= byCorner ? up : corner;
}

/** A mask as a grey PNG: 255 where it is set. @param {Uint8Array} bytes one a pixel, 0 or 1 */
export function maskPng(bytes, width, height) {
  async function* rows() {
    const lines = Math.max(1, Math.floor(2 ** 20 / width));
    for (let y = 0; y < height; y += lines) {
      yield bytes.subarray(y * width, Math.min(height, y + lines) * width).map((value) => value && 255);
    }
  }
  return writePng({ width, height, colour: 0, depth: 8 }, rows());
}
