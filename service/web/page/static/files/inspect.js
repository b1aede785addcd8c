// Facts of a file, read without decoding it: format, transparency, colour profile, EXIF, orientation.

import { ascii, readU32 } from "./bytes.js";

/**
 * @typedef {object} Facts
 * @property {"png" | "jpeg" | "webp"} format
 * @property {boolean} opaque no pixel is transparent
 * @property {Uint8Array | null} icc the colour profile
 * @property {Uint8Array | null} iccChunk of a PNG: its iCCP chunk as it is
 * @property {Uint8Array | null} exif TIFF structure of the EXIF data
 * @property {number} orientation of EXIF, 1 … 8
 * @property {boolean} [animated] it has more than one frame, which the server does not fill
 * @property {boolean} lossless of a WebP: its pixels are stored without loss
 * @property {{depth: number, colour: number, interlaced: boolean} | null} png the kind of pixels of a PNG
 */

/** The facts of a file; null if it is neither JPEG, PNG nor WebP. @param {Uint8Array} bytes @returns {Facts | null} */
export function inspect(bytes) {
  const facts = readAny(bytes);
  if (!facts) return null;
  // copies, as views would keep the whole file in memory
  const [icc, iccChunk, exif] = [facts.icc, facts.iccChunk, facts.exif].map((part) => part && part.slice());
  return { ...facts, icc, iccChunk, exif, orientation: exif ? orientationAt(exif).value : 1 };
}

function readAny(bytes) {
  if (readU32(bytes, 0) === 0x89504e47) return pngFacts(bytes);
  if (bytes[0] === 0xff && bytes[1] === 0xd8) return jpegFacts(bytes);
  if (ascii(bytes, 0, 4) === "RIFF" && ascii(bytes, 8, 12) === "WEBP") return webpFacts(bytes);
  return null;
}

/** The complete chunks of a PNG, up to the first truncated one. */
export function* pngChunks(bytes) {
  for (let at = 8; at + 12 <= bytes.length; ) {
    const length = readU32(bytes, at);
    if (at + 12 + length > bytes.length) return;
    yield { type: ascii(bytes, at + 4, at + 8), data: bytes.subarray(at + 8, at + 8 + length) };
    at += 12 + length;
  }
}

function pngFacts(bytes) {
  const facts = { format: "png", opaque: true, icc: null, iccChunk: null, exif: null, png: null };
  for (const { type, data } of pngChunks(bytes)) {
    if (type === "IHDR") {
      facts.png = { depth: data[8], colour: data[9], interlaced: data[12] === 1 };
      if (data[9] === 4 || data[9] === 6) facts.opaque = false;
    } else if (type === "tRNS") facts.opaque = false;
    else if (type === "acTL") facts.animated = readU32(data, 0) !== 1;
    else if (type === "iCCP") facts.iccChunk = data;
    else if (type === "eXIf") facts.exif ??= data;
  }
  return facts.png && facts;
}

/** The segments of a JPEG from `at` to the head of the next scan, which is the last one. */
export function* jpegSegments(bytes, at = 2) {
  while (at + 4 <= bytes.length && bytes[at] === 0xff) {
    const marker = bytes[at + 1];
    if (marker === 0xd9) return;
    if (marker === 0xff) {
      at += 1; // a fill byte
      continue;
    }
    const length = (bytes[at + 2] << 8) | bytes[at + 3];
    yield { marker, start: at, data: bytes.subarray(at + 4, at + 2 + length) };
    if (marker === 0xda) return;
    at += 2 + length;
  }
}

function jpegFacts(bytes) {
  const parts = [];
  let exif = null;
  for (const { marker, data } of jpegSegments(bytes)) {
    if (marker === 0xe1 && ascii(data, 0, 4) === "Exif") exif ??= data.subarray(6);
    if (marker === 0xe2 && ascii(data, 0, 11) === "ICC_PROFILE") parts.push({ number: data[12], data: data.subarray(14) });
  }
  parts.sort((a, b) => a.number - b.number);
  const icc = parts.length ? joined(parts.map((part) => part.data)) : null;
  return { format: "jpeg", opaque: true, icc, iccChunk: null, exif, png: null };
}

function webpFacts(bytes) {
  const facts = { format: "webp", opaque: true, icc: null, iccChunk: null, exif: null, png: null, lossless: false };
  for (let at = 12; at + 8 <= bytes.length; ) {
    const type = ascii(bytes, at, at + 4);
    const length = (bytes[at + 4] | (bytes[at + 5] << 8) | (bytes[at + 6] << 16) | (bytes[at + 7] << 24)) >>> 0;
    const data = bytes.subarray(at + 8, at + 8 + length);
    if (type === "VP8X") {
      if (data[0] & 0x10) facts.opaque = false;
      facts.animated = (data[0] & 2) > 0;
    }
    if (type === "VP8L") {
      facts.lossless = true;
      if (data[4] & 0x10) facts.opaque = false;
    }
    if (type === "ICCP") facts.icc = data;
    if (type === "EXIF") facts.exif ??= ascii(data, 0, 4) === "Exif" ? data.subarray(6) : data;
    at += 8 + length + (length & 1);
  }
  return facts;
}

/** Joins byte arrays. @param {Uint8Array[]} parts */
export function joined(parts) {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** The first valid orientation in EXIF data, as browsers read it (1 without one), its offset (-1 without one), and the offset of the pointer to the thumbnail's directory. */
export function orientationAt(exif) {
  const little = exif[0] === 0x49;
  const u16 = (at) => (little ? exif[at] | (exif[at + 1] << 8) : (exif[at] << 8) | exif[at + 1]);
  const u32 = (at) => (little ? u16(at) | (u16(at + 2) << 16) : (u16(at) << 16) | u16(at + 2));
  const offset = u32(4);
  const next = offset + 2 + u16(offset) * 12;
  for (let at = offset + 2; at < next && at + 12 <= exif.length; at += 12) {
    const value = u16(at + 8);
    // 42 is the magic number of TIFF; the value is one number of 16 bits
    if (`${[u16(2), u16(at), u16(at + 2), u32(at + 4)]}` === "42,274,3,1" && value > 0 && value < 9) return { value, at: at + (little ? 8 : 9), next };
  }
  return { value: 1, at: -1, next };
}
