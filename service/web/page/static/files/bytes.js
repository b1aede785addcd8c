// Bytes: numbers in files, checksums, and the browser's own deflate.

/** A big-endian number of 4 bytes. */
export function u32(value) {
  return Uint8Array.of(value >>> 24, value >>> 16, value >>> 8, value);
}

/** The big-endian number of 4 bytes at `at`. */
export function readU32(bytes, at) {
  return ((bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3]) >>> 0;
}

/** ASCII text at [from, to). */
export function ascii(bytes, from, to) {
  return String.fromCharCode(...bytes.subarray(from, to));
}

/** The bytes of a text whose characters are below 256. */
export function asciiBytes(text) {
  return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, value) => {
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

/** CRC-32 as PNG and ZIP use it. @param {number} crc CRC of the preceding bytes, to continue */
export function crc32(bytes, crc = 0) {
  let value = ~crc;
  for (let i = 0; i < bytes.length; i++) value = CRC_TABLE[(value ^ bytes[i]) & 255] ^ (value >>> 8);
  return ~value >>> 0;
}

/** Runs bytes through the browser's CompressionStream or DecompressionStream; yields its output. */
export async function* through(stream, chunks) {
  const writer = stream.writable.getWriter();
  const fed = (async () => {
    for await (const chunk of chunks) await writer.write(chunk);
    await writer.close();
  })();
  fed.catch(() => {}); // the reader sees the failure too, and first
  const reader = stream.readable.getReader();
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) yield value;
  await fed;
}

/** A file name that is safe in a ZIP, in a command and as a download: letters, digits, dots, dashes, spaces. */
export function safeName(name, fallback = "picture") {
  return name.normalize("NFC").replace(/[^\p{L}\p{N}._ -]/gu, "_").replace(/^[. -]+/, "").slice(0, 100) || fallback;
}

/** The name without its last extension. */
export function stem(name) {
  return name.replace(/\.[^.]{1,5}$/, "");
}

/** An error about a file; its cause is the reason, in words that fit several names too. */
export function fileError(name, cause) {
  return new Error(name + cause, { cause });
}

/** A copy of a file, which could change or vanish on the disk while in use; a Blob in memory is returned unchanged. @param {Blob} file @returns {Promise<Blob>} */
export async function copied(file, name) {
  if (!(file instanceof File)) return file;
  const bytes = await file.arrayBuffer().catch(() => {
    throw fileError(name, " cannot be read: a folder, or no longer there.");
  });
  return new Blob([bytes], { type: file.type });
}
