// The quantised coefficients of a JPEG (ITU-T T.81), baseline or progressive. Copied as they are, they lose nothing.

import { ascii } from "../bytes.js";
import { jpegSegments } from "../inspect.js";

/**
 * @typedef {object} Component
 * @property {number} id @property {number} h @property {number} v samples of a unit, in blocks
 * @property {number} wide @property {number} high blocks that hold samples of the picture
 * @property {number} columns blocks of a row, with those that fill up the last unit
 * @property {number} quantiser
 * @property {Int16Array} values 64 coefficients a block, in the order of the file (zigzag)
 */
/**
 * @typedef {object} Frame
 * @property {number} width @property {number} height @property {number} h @property {number} v blocks of a unit
 * @property {number} columns @property {number} rows units
 * @property {Component[]} components
 * @property {Uint16Array[]} quantisers tables in the order of the file, by their number
 * @property {Uint8Array[]} kept segments that decoding needs: JFIF without its small picture, Adobe's, tables
 * @property {boolean} rgb components are red, green and blue
 */

/** Reads a file. Throws an Error for kinds that are not read here: four colours, 12 bits, arithmetic coding, lossless. @param {Uint8Array} bytes @returns {Frame} */
export function readJpeg(bytes) {
  const frame = { components: [], quantisers: [], kept: [], rgb: false };
  const tables = [];
  let interval = 0;
  let jfif = false;
  for (let at = 2; at; ) {
    let next = 0;
    for (const { marker, start, data } of jpegSegments(bytes, at)) {
      const segment = bytes.slice(start, start + 4 + data.length);
      if (marker === 0xe0 && ascii(data, 0, 4) === "JFIF" && data.length > 13) {
        jfif = true;
        segment.set([0, 16], 2);
        segment.fill(0, 16); // the size of the thumbnail, which shows the removed content
        frame.kept.push(segment.subarray(0, 18));
      } else if (marker === 0xee && ascii(data, 0, 5) === "Adobe") {
        frame.rgb = data[11] === 0;
        frame.kept.push(segment);
      } else if (marker === 0xdb) {
        readQuantisers(data, frame.quantisers);
        frame.kept.push(segment);
      } else if (marker === 0xc4) readTables(data, tables);
      else if (marker === 0xdd) interval = (data[0] << 8) | data[1];
      else if (marker >= 0xc0 && marker < 0xd0) readFrame(marker, data, frame);
      else if (marker === 0xda) next = readScan(frame, data, tables, interval, new Bits(bytes, start + 4 + data.length));
    }
    at = next;
  }
  if (!frame.columns) throw new Error("The JPEG holds no picture.");
  frame.rgb = !jfif && frame.components.length === 3 && (frame.rgb || frame.components.map(({ id }) => String.fromCharCode(id)).join("") === "RGB");
  return frame;
}

function readFrame(marker, data, frame) {
  const count = data[5];
  const [height, width] = [(data[1] << 8) | data[2], (data[3] << 8) | data[4]];
  if (marker > 0xc2 || data[0] !== 8 || (count !== 1 && count !== 3) || !width || !height || frame.columns) throw new Error("This kind of JPEG is not read here.");
  for (let at = 6; at < 6 + count * 3; at += 3) {
    // the only component has one block a unit, whatever its numbers say
    const [h, v] = count === 1 ? [1, 1] : [data[at + 1] >> 4, data[at + 1] & 15];
    frame.components.push({ id: data[at], h, v, quantiser: data[at + 2], before: 0 });
  }
  const h = Math.max(...frame.components.map((part) => part.h));
  const v = Math.max(...frame.components.map((part) => part.v));
  Object.assign(frame, { width, height, h, v, columns: Math.ceil(width / h / 8), rows: Math.ceil(height / v / 8) });
  for (const part of frame.components) {
    if (h % part.h || v % part.v) throw new Error("This subsampling is not read here.");
    part.wide = Math.ceil((width * part.h) / h / 8);
    part.high = Math.ceil((height * part.v) / v / 8);
    part.columns = frame.columns * part.h;
    part.values = new Int16Array(part.columns * frame.rows * part.v * 64);
  }
}

function readQuantisers(data, quantisers) {
  for (let at = 0; at < data.length; ) {
    const wide = data[at] >> 4;
    const number = data[at++] & 15;
    quantisers[number] = Uint16Array.from({ length: 64 }, () => (wide ? (data[at++] << 8) | data[at++] : data[at++]));
  }
}

/** Huffman tables as look-up tables of the next 16 bits: length of the code · 256 + symbol. */
function readTables(data, tables) {
  for (let at = 0; at < data.length; ) {
    const table = (tables[data[at]] = new Uint16Array(65536));
    let symbol = at + 17;
    for (let size = 1, code = 0; size <= 16; size++) {
      for (let left = data[at + size]; left; left--, code += 65536 >> size) {
        table.fill((size << 8) | data[symbol++], code, code + (65536 >> size));
      }
    }
    at = symbol;
  }
}

/** Reads a scan into the components' coefficients; the place of the marker after it. */
function readScan(frame, data, tables, interval, bits) {
  const count = data[0];
  const [from, to, steps] = data.subarray(1 + count * 2);
  const scan = { from, to, high: steps >> 4, low: steps & 15, empty: 0 };
  const parts = Array.from({ length: count }, (_, i) => {
    const part = frame.components.find(({ id }) => id === data[1 + i * 2]);
    return Object.assign(part, { dc: tables[data[2 + i * 2] >> 4], ac: tables[16 + (data[2 + i * 2] & 15)], before: 0 });
  });
  // one component alone comes without the blocks that fill up its last unit
  const [columns, rows] = count === 1 ? [parts[0].wide, parts[0].high] : [frame.columns, frame.rows];
  for (let unit = 0; unit < columns * rows; unit++) {
    if (interval && unit && unit % interval === 0) {
      bits.restart();
      scan.empty = 0;
      for (const part of parts) part.before = 0;
    }
    const row = Math.floor(unit / columns);
    const column = unit % columns;
    if (count === 1) readBlock(bits, parts[0], (row * parts[0].columns + column) * 64, scan);
    else for (const part of parts) for (let n = 0; n < part.h * part.v; n++) readBlock(bits, part, blockAt(part, row, column, n), scan);
  }
  return bits.next();
}

/** The place of block `n` of a component in the unit at a row and column. */
export function blockAt({ h, v, columns }, row, column, n) {
  return ((row * v + Math.floor(n / h)) * columns + column * h + (n % h)) * 64;
}

/** Reads a scan's coefficients of the block at `at`; `scan.empty` counts further blocks without any. */
function readBlock(bits, part, at, scan) {
  const { values } = part;
  let k = scan.from;
  if (k === 0) {
    if (scan.high) values[at] |= bits.take(1) << scan.low;
    else values[at] = (part.before += bits.signed(bits.symbol(part.dc))) << scan.low;
    k = 1;
  }
  if (k > scan.to) return;
  if (scan.high) refine(bits, part, at, scan);
  else if (scan.empty) scan.empty--;
  else {
    for (; k <= scan.to; k++) {
      const symbol = bits.symbol(part.ac);
      const zeros = symbol >> 4;
      if (symbol & 15) values[at + (k += zeros)] = bits.signed(symbol & 15) << scan.low;
      else if (zeros === 15) k += 15;
      else {
        scan.empty = (1 << zeros) - 1 + bits.take(zeros);
        return;
      }
    }
  }
}

/** Refines known coefficients by one bit, and reads new ones among them (T.81, G.1.2.3). */
function refine(bits, { values, ac }, at, scan) {
  const one = 1 << scan.low;
  const more = (place) => {
    if (bits.take(1) && !(Math.abs(values[place]) & one)) values[place] += values[place] > 0 ? one : -one;
  };
  let k = scan.from;
  for (; k <= scan.to && !scan.empty; k++) {
    const symbol = bits.symbol(ac);
    let zeros = symbol >> 4;
    let value = 0;
    if (symbol & 15) value = bits.take(1) ? one : -one;
    else if (zeros < 15) {
      scan.empty = (1 << zeros) + bits.take(zeros);
      break;
    }
    for (; k <= scan.to; k++) {
      if (values[at + k]) more(at + k);
      else if (zeros-- === 0) {
        values[at + k] = value;
        break;
      }
    }
  }
  if (!scan.empty) return;
  for (; k <= scan.to; k++) if (values[at + k]) more(at + k);
  scan.empty--;
}

/** Bits of a scan; zeros after its end. */
class Bits {
  #buffer = 0;
  #count = 0;

  constructor(bytes, at) {
    this.bytes = bytes;
    this.at = at;
  }

  #need(count) {
    for (; this.#count < count; this.#count += 8) {
      let byte = this.bytes[this.at];
      if (byte !== 255) this.at++;
      else if (this.bytes[this.at + 1] === 0) this.at += 2;
      else byte = 0; // a marker: the scan ends
      this.#buffer = (this.#buffer << 8) | byte;
    }
  }

  take(count) {
    this.#need(count);
    this.#count -= count;
    return (this.#buffer >>> this.#count) & ((1 << count) - 1);
  }

  /** A signed number of that many bits (EXTEND of T.81, F.2.2.1). */
  signed(size) {
    const value = this.take(size);
    return value < (1 << size) >> 1 ? value - (1 << size) + 1 : value;
  }

  symbol(table) {
    this.#need(16);
    const found = table[(this.#buffer >>> (this.#count - 16)) & 65535];
    if (!found) throw new Error("The JPEG is damaged.");
    this.#count -= found >> 8;
    return found & 255;
  }

  /** The place of the next marker. */
  next() {
    this.#count = 0;
    while (this.at < this.bytes.length && !(this.bytes[this.at] === 255 && this.bytes[this.at + 1])) this.at++;
    return this.at;
  }

  restart() {
    const at = this.next();
    if ((this.bytes[at + 1] & 0xf8) === 0xd0) this.at += 2;
  }
}
