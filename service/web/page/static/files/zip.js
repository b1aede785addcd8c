// A ZIP writer that stores and never compresses: pictures are compressed already.

import { crc32 } from "./bytes.js";

/**
 * Packs files. At most 4 GiB in all, as the 64-bit extension is not written.
 * @param {{name: string, blob: Blob}[]} files @returns {Promise<Blob>}
 */
export async function zip(files) {
  const parts = [];
  const directory = [];
  let offset = 0;
  for (const { name, blob } of uniqueNames(files)) {
    let crc = 0;
    const reader = blob.stream().getReader();
    for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) crc = crc32(value, crc);
    const encoded = new TextEncoder().encode(name);
    const facts = [20, 0x800, 0, 0, 0x21]; // version; names in UTF-8; stored; 1980-01-01
    const sizes = { crc, size: blob.size, name: encoded.length };
    parts.push(record(0x04034b50, facts, sizes), encoded, blob);
    directory.push(record(0x02014b50, [20, ...facts], sizes, offset), encoded);
    offset += 30 + encoded.length + blob.size;
    if (offset > 0xffffffff - 2 ** 20) throw new Error("The results are larger than the 4 GiB that a ZIP holds.");
  }
  const length = directory.reduce((sum, part) => sum + part.length, 0);
  return new Blob([...parts, ...directory, end(files.length, length, offset)], { type: "application/zip" });
}

function record(signature, numbers, { crc, size, name }, offset) {
  const central = offset !== undefined;
  const view = new DataView(new ArrayBuffer(central ? 46 : 30));
  view.setUint32(0, signature, true);
  let at = 4;
  for (const number of numbers) {
    view.setUint16(at, number, true);
    at += 2;
  }
  for (const number of [crc, size, size]) {
    view.setUint32(at, number, true);
    at += 4;
  }
  view.setUint16(at, name, true);
  if (central) view.setUint32(42, offset, true);
  return new Uint8Array(view.buffer);
}

function end(count, length, offset) {
  const view = new DataView(new ArrayBuffer(22));
  view.setUint32(0, 0x06054b50, true);
  view.setUint16(8, count, true);
  view.setUint16(10, count, true);
  view.setUint32(12, length, true);
  view.setUint32(16, offset, true);
  return new Uint8Array(view.buffer);
}

/** Gives the second of two files of one name a number. */
function uniqueNames(files) {
  const seen = new Set();
  return files.map(({ name, blob }) => {
    const [, base, extension] = name.match(/^(.*?)(\.[^.]*)?$/s);
    let unique = name;
    for (let number = 2; seen.has(unique); number++) unique = `${base} ${number}${extension ?? ""}`;
    seen.add(unique);
    return { name: unique, blob };
  });
}
