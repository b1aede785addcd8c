// A ZIP writer that stores files uncompressed, as pictures are already compressed.

import { crc32 } from "./bytes.js";

const FACTS = "2222244422";

/**
 * Packs files. At most 4 GiB in all, as the 64-bit extension is not written.
 * @param {{name: string, blob: Blob}[]} files @param {AbortSignal} cancelled @returns {Promise<Blob>}
 */
export async function zip(files, cancelled) {
  const parts = [];
  const directory = [];
  let offset = 0;
  for (const { name, blob } of uniqueNames(files)) {
    let crc = 0;
    const reader = blob.stream().getReader();
    for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
      cancelled.throwIfAborted();
      crc = crc32(value, crc);
    }
    const encoded = new TextEncoder().encode(name);
    // version; names in UTF-8; stored; 1980-01-01; no further fields
    const facts = [20, 0x800, 0, 0, 0x21, crc, blob.size, blob.size, encoded.length, 0];
    parts.push(record(`4${FACTS}`, 0x04034b50, ...facts), encoded, blob);
    directory.push(record(`42${FACTS}22244`, 0x02014b50, 20, ...facts, 0, 0, 0, 0, offset), encoded);
    offset += 30 + encoded.length + blob.size;
    if (offset > 0xffffffff - 2 ** 20) throw new Error("The results are larger than the 4 GiB that a ZIP holds.");
  }
  const length = directory.reduce((sum, part) => sum + part.length, 0);
  const end = record("42222442", 0x06054b50, 0, 0, files.length, files.length, length, offset, 0);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}

/** Little-endian numbers. @param {string} sizes the bytes of each, as digits */
function record(sizes, ...numbers) {
  return Uint8Array.from(numbers.flatMap((number, i) => Array.from({ length: sizes[i] }, (_, byte) => number / 256 ** byte)));
}

/** Appends a number to the name of a file whose name is already taken. */
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
