// A baseline JPEG from quantised coefficients, with Huffman codes made for them (ITU-T T.81, annexes F and K.2).

import { blockAt } from "./reader.js";

/** Writes a frame. @param {import("./reader.js").Frame} frame @returns {Uint8Array[]} parts of the file */
export function writeJpeg(frame) {
  const counts = [0, 1, 2, 3].map(() => new Float64Array(256));
  encode(frame, (table, symbol) => counts[table][symbol]++);
  const codes = counts.slice(0, frame.components.length > 1 ? 4 : 2).map(codesFor);
  const bits = new BitWriter();
  encode(frame, (table, symbol, value, size) => {
    bits.put(codes[table].code[symbol], codes[table].size[symbol]);
    bits.put(value < 0 ? value + (1 << size) - 1 : value, size);
  });
  bits.put(127, 7); // ones fill the last byte
  return [Uint8Array.of(0xff, 0xd8), ...frame.kept, ...headers(frame, codes), ...bits.parts, Uint8Array.of(0xff, 0xd9)];
}

function headers({ width, height, components, quantisers }, codes) {
  const deep = components.some(({ quantiser }) => quantisers[quantiser].some((step) => step > 255));
  const parts = components.flatMap(({ id, h, v, quantiser }) => [id, (h << 4) | v, quantiser]);
  // numbers of tables: 0 and 1 for the first component and the others, with 16 more for AC
  const tables = codes.map(({ counts, symbols }, i) => segment(0xc4, [(i >> 1) | ((i & 1) << 4), ...counts, ...symbols]));
  return [
    segment(deep ? 0xc1 : 0xc0, [8, height >> 8, height & 255, width >> 8, width & 255, components.length, ...parts]),
    ...tables,
    segment(0xda, [components.length, ...components.flatMap(({ id }, i) => [id, i ? 0x11 : 0]), 0, 63, 0]),
  ];
}

/** A segment of a JPEG. @param {number} marker @param {number[]} data */
export function segment(marker, data) {
  return Uint8Array.of(0xff, marker, (data.length + 2) >> 8, (data.length + 2) & 255, ...data);
}

/** Passes on the symbols of all blocks, in order: table, symbol, value and the size of the value in bits. */
function encode({ components, columns, rows }, tell) {
  const before = components.map(() => 0);
  const emit = (table, zeros, value) => {
    const size = 32 - Math.clz32(Math.abs(value));
    tell(table, (zeros << 4) | size, value, size);
  };
  for (let unit = 0; unit < columns * rows; unit++) {
    const row = Math.floor(unit / columns);
    const column = unit % columns;
    components.forEach((part, i) => {
      for (let n = 0; n < part.h * part.v; n++) {
        const at = blockAt(part, row, column, n);
        encodeBlock(part.values, at, before[i], i ? 2 : 0, emit);
        before[i] = part.values[at];
      }
    });
  }
}

function encodeBlock(values, at, before, table, emit) {
  emit(table, 0, values[at] - before);
  let zeros = 0;
  for (let k = at + 1; k < at + 64; k++) {
    if (values[k] === 0) zeros++;
    else {
      for (; zeros > 15; zeros -= 16) emit(table + 1, 15, 0);
      emit(table + 1, zeros, values[k]);
      zeros = 0;
    }
  }
  if (zeros) emit(table + 1, 0, 0);
}

/** Optimal codes for symbols with these frequencies, or nearly optimal ones if the optimal have more than 16 bits. The code of all ones is not used. */
function codesFor(often) {
  const lengths = lengthsFor(often);
  if (Math.max(...lengths.values()) > 16) return codesFor(often.map((count) => Math.ceil(count / 2)));
  const found = { code: new Uint16Array(256), size: new Uint8Array(256), counts: new Uint8Array(16) };
  found.symbols = [...lengths.keys()].sort((a, b) => lengths.get(a) - lengths.get(b) || a - b).slice(0, -1);
  let [code, length] = [0, 0];
  for (const symbol of found.symbols) {
    code <<= lengths.get(symbol) - length;
    length = lengths.get(symbol);
    found.code[symbol] = code++;
    found.size[symbol] = length;
    found.counts[length - 1]++;
  }
  return found;
}

/** Huffman code lengths by symbol; symbol 256 reserves the unused code, and is the last of the longest. */
function lengthsFor(often) {
  const lengths = new Map([[256, 0]]);
  let trees = [{ often: 0, symbols: [256] }];
  often.forEach((count, symbol) => {
    if (!count) return;
    lengths.set(symbol, 0);
    trees.push({ often: count, symbols: [symbol] });
  });
  while (trees.length > 1) {
    const [a, b, ...rest] = trees.sort((one, other) => one.often - other.often);
    const symbols = [...a.symbols, ...b.symbols];
    for (const symbol of symbols) lengths.set(symbol, lengths.get(symbol) + 1);
    trees = [{ often: a.often + b.often, symbols }, ...rest];
  }
  return lengths;
}

/** Writes bits as bytes, in parts; a byte 0xff is followed by 0 (byte stuffing). */
class BitWriter {
  #buffer = 0;
  #count = 0;
  #part = new Uint8Array(2 ** 20);
  #at = 0;
  #full = [];

  put(value, size) {
    this.#buffer = (this.#buffer << size) | value;
    for (this.#count += size; this.#count > 7; ) {
      this.#count -= 8;
      const byte = (this.#buffer >>> this.#count) & 255;
      this.#part[this.#at++] = byte;
      if (byte === 255) this.#part[this.#at++] = 0;
      if (this.#at < this.#part.length - 1) continue;
      this.#full.push(this.#part.subarray(0, this.#at));
      this.#part = new Uint8Array(2 ** 20);
      this.#at = 0;
    }
  }

  get parts() {
    return [...this.#full, this.#part.subarray(0, this.#at)];
  }
}
