// A PNG decoder that yields rows of the file's own samples: 16 bits stay 16 bits and alpha is not multiplied in, which
// a canvas does not guarantee. For files without interlacing; the browser decodes others.

import { through } from "./bytes.js";
import { pngChunks } from "./inspect.js";
import { CHANNELS, paeth } from "./png_writer.js";

const BLOCK_BYTES = 2 ** 20;

/** The kind of PNG that holds all samples of this one, once a palette is written out and small samples are widened. */
export function kindOf(bytes) {
  const { header, transparency } = parts(bytes);
  const { width, height, depth, colour } = header;
  const alpha = transparency !== null;
  const wide = { 0: alpha ? 4 : 0, 2: alpha ? 6 : 2, 3: alpha ? 6 : 2, 4: 4, 6: 6 }[colour];
  return { width, height, colour: wide, depth: depth === 16 ? 16 : 8 };
}

/** Decoded rows of that kind, several at a time. Throws an Error if the data ends early. @param {Uint8Array} bytes */
export async function* readPngRows(bytes) {
  const { header, palette, transparency, data } = parts(bytes);
  const bits = CHANNELS[header.colour] * header.depth;
  const stride = Math.ceil((header.width * bits) / 8);
  const lines = Math.max(1, Math.floor(BLOCK_BYTES / (stride + 1)));
  const widen = widener(header, palette, transparency);
  let above = new Uint8Array(stride);
  let left = header.height;
  for await (const block of blocksOf(through(new DecompressionStream("deflate"), data), stride + 1, lines, left)) {
    const count = block.length / (stride + 1);
    const rows = [];
    for (let row = 0; row < count; row++) {
      const line = block.subarray(row * (stride + 1) + 1, (row + 1) * (stride + 1));
      unfilter(block[row * (stride + 1)], line, above, Math.max(1, bits >> 3));
      rows.push(widen(line));
      above = line;
    }
    left -= count;
    const out = new Uint8Array(rows.length * rows[0].length);
    rows.forEach((row, i) => out.set(row, i * row.length));
    yield out;
  }
  if (left > 0) throw new Error("The PNG ends before its last row.");
}

function parts(bytes) {
  const found = { header: null, palette: null, transparency: null, data: [] };
  for (const { type, data } of pngChunks(bytes)) {
    if (type === "IHDR") {
      const view = new DataView(data.buffer, data.byteOffset);
      found.header = { width: view.getUint32(0), height: view.getUint32(4), depth: data[8], colour: data[9] };
    } else if (type === "PLTE") found.palette = data;
    else if (type === "tRNS") found.transparency = data;
    else if (type === "IDAT") found.data.push(data);
  }
  return found;
}

/** Regroups a stream into blocks of whole rows. */
async function* blocksOf(stream, rowBytes, lines, rows) {
  let block = new Uint8Array(Math.min(lines, rows) * rowBytes);
  let filled = 0;
  for await (const piece of stream) {
    for (let at = 0; at < piece.length && rows > 0; ) {
      const size = Math.min(piece.length - at, block.length - filled);
      block.set(piece.subarray(at, at + size), filled);
      at += size;
      filled += size;
      if (filled < block.length) continue;
      yield block;
      rows -= block.length / rowBytes;
      block = new Uint8Array(Math.min(lines, rows) * rowBytes);
      filled = 0;
    }
  }
}

function unfilter(type, line, above, bpp) {
  for (let i = 0; i < line.length; i++) {
    const left = i < bpp ? 0 : line[i - bpp];
    const corner = i < bpp ? 0 : above[i - bpp];
    if (type === 1) line[i] += left;
    else if (type === 2) line[i] += above[i];
    else if (type === 3) line[i] += (left + above[i]) >> 1;
    else if (type === 4) line[i] += paeth(left, above[i], corner);
  }
}

/** A function that turns a row of the file into one of `kindOf`. */
function widener({ width, depth, colour }, palette, transparency) {
  const sample = (line, x) => (line[(x * depth) >> 3] >> (8 - depth - ((x * depth) & 7))) & ((1 << depth) - 1);
  if (colour === 3) return (line) => fromPalette(line, width, sample, palette, transparency);
  if (colour === 0 && depth < 8 && transparency === null) {
    const factor = 255 / ((1 << depth) - 1);
    return (line) => Uint8Array.from({ length: width }, (_, x) => sample(line, x) * factor);
  }
  if (transparency === null || colour === 4 || colour === 6) return (line) => line;
  return (line) => withKeyedAlpha(line, { width, depth, colour }, sample, transparency);
}

function fromPalette(line, width, sample, palette, transparency) {
  const channels = transparency === null ? 3 : 4;
  const out = new Uint8Array(width * channels);
  for (let x = 0; x < width; x++) {
    const index = sample(line, x);
    for (let c = 0; c < 3; c++) out[x * channels + c] = palette[index * 3 + c];
    if (channels === 4) out[x * 4 + 3] = transparency[index] ?? 255;
  }
  return out;
}

/** Adds the alpha of a tRNS chunk with a single colour: 0 for that colour, opaque for all others. */
function withKeyedAlpha(line, { width, depth, colour }, sample, transparency) {
  const channels = CHANNELS[colour];
  const size = depth === 16 ? 2 : 1;
  const key = new DataView(transparency.buffer, transparency.byteOffset);
  const out = new Uint8Array(width * (channels + 1) * size);
  for (let x = 0; x < width; x++) {
    let same = true;
    for (let c = 0; c < channels; c++) {
      const at = (x * channels + c) * size;
      const value = depth < 8 ? sample(line, x) : size === 2 ? (line[at] << 8) | line[at + 1] : line[at];
      same &&= value === key.getUint16(c * 2);
      const to = (x * (channels + 1) + c) * size;
      if (depth < 8) out[to] = (value * 255) / ((1 << depth) - 1);
      else for (let i = 0; i < size; i++) out[to + i] = line[at + i];
    }
    out.fill(same ? 0 : 255, (x * (channels + 1) + channels) * size, (x + 1) * (channels + 1) * size);
  }
  return out;
}
