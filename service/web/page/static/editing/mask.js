// The mask: one byte per pixel of the picture; 1 marks pixels to fill.
//
// Edits are recorded by tile, as a thin diagonal stroke across 50 megapixels touches few tiles while its bounding box is
// the whole picture. A difference is the exclusive-or of before and after, a bit per pixel: it undoes and redoes.

/** Side of a tile in pixels. */
export const TILE = 256;
const TILE_BYTES = (TILE * TILE) / 8;

/** @typedef {{x: number, y: number, width: number, height: number}} Rect */
/** @typedef {Map<number, Uint8Array>} Diff tile index → bits that differ */

export class Mask {
  /** @param {number} width @param {number} height pixels of the picture */
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.data = new Uint8Array(width * height);
    this.columns = Math.ceil(width / TILE);
    this.rows = Math.ceil(height / TILE);
    /** Number of set pixels in each tile, as of the last commit. */
    this.counts = new Uint32Array(this.columns * this.rows);
    /** @type {Map<number, Uint8Array> | null} tiles as they were before the edit in progress */
    this.before = null;
  }

  /** Number of set pixels, as of the last commit. */
  get area() {
    return this.counts.reduce((sum, count) => sum + count, 0);
  }

  /** Whether the tile may have set pixels, also during an edit. */
  occupied(index) {
    return this.counts[index] > 0 || (this.before !== null && this.before.has(index));
  }

  /** Begins an edit; areas to be written must first be announced with `touch`. */
  begin() {
    this.before = new Map();
  }

  /** Remembers the tiles that intersect [x0, x1) × [y0, y1). */
  touch(x0, y0, x1, y1) {
    const left = Math.max(0, Math.floor(x0 / TILE));
    const right = Math.min(this.columns - 1, Math.floor((x1 - 1) / TILE));
    const top = Math.max(0, Math.floor(y0 / TILE));
    const bottom = Math.min(this.rows - 1, Math.floor((y1 - 1) / TILE));
    for (let row = top; row <= bottom; row++) {
      for (let column = left; column <= right; column++) {
        const index = row * this.columns + column;
        if (!this.before.has(index)) this.before.set(index, this.#copy(index));
      }
    }
  }

  /** Sets the pixels [x0, x1) of row y, cut at the borders; their tiles must have been touched. */
  span(y, x0, x1, value) {
    if (y < 0 || y >= this.height) return;
    const start = Math.max(0, x0);
    const end = Math.min(this.width, x1);
    if (end > start) this.data.fill(value, y * this.width + start, y * this.width + end);
  }

  /** Ends the edit. @returns {Diff | null} what it changed; null if nothing */
  commit() {
    const diff = new Map();
    for (const [index, old] of this.before ?? []) {
      const bits = this.#difference(index, old);
      if (bits) {
        diff.set(index, bits);
        this.counts[index] = this.#count(index);
      }
    }
    this.before = null;
    return diff.size ? diff : null;
  }

  /** Ends the edit and reverts its changes. */
  abort() {
    for (const [index, old] of this.before ?? []) this.#paste(index, old);
    this.before = null;
  }

  /** Applies a difference: undoes it if it is applied, else redoes it. @param {Diff} diff */
  toggle(diff) {
    for (const [index, bits] of diff) {
      const { x, y, width, height } = this.tile(index);
      for (let row = 0; row < height; row++) {
        const at = (y + row) * this.width + x;
        for (let column = 0; column < width; column++) {
          const bit = row * TILE + column;
          this.data[at + column] ^= (bits[bit >> 3] >> (bit & 7)) & 1;
        }
      }
      this.counts[index] = this.#count(index);
    }
  }

  /** The set pixels as a difference from an empty mask, to be stored. @returns {Diff} */
  snapshot() {
    const found = new Map();
    const empty = new Uint8Array(TILE * TILE);
    for (let index = 0; index < this.counts.length; index++) {
      if (this.counts[index]) found.set(index, this.#difference(index, empty));
    }
    return found;
  }

  /** The smallest rectangle around the set pixels; null if there are none. @returns {Rect | null} */
  bounds() {
    let [left, top, right, bottom] = [Infinity, Infinity, -1, -1];
    for (let index = 0; index < this.counts.length; index++) {
      if (!this.counts[index]) continue;
      const tile = this.tile(index);
      if (tile.x >= left && tile.y >= top && tile.x + tile.width <= right && tile.y + tile.height <= bottom) continue;
      for (let y = tile.y; y < tile.y + tile.height; y++) {
        const start = y * this.width + tile.x;
        const row = this.data.subarray(start, start + tile.width);
        const first = row.indexOf(1);
        if (first < 0) continue;
        left = Math.min(left, tile.x + first);
        right = Math.max(right, tile.x + row.lastIndexOf(1) + 1);
        top = Math.min(top, y);
        bottom = Math.max(bottom, y + 1);
      }
    }
    return right < 0 ? null : { x: left, y: top, width: right - left, height: bottom - top };
  }

  /** The pixels of a rectangle, one byte per pixel. @param {Rect} rect */
  cut({ x, y, width, height }) {
    const out = new Uint8Array(width * height);
    for (let row = 0; row < height; row++) {
      const start = (y + row) * this.width + x;
      out.set(this.data.subarray(start, start + width), row * width);
    }
    return out;
  }

  /** The rectangle of a tile, cut at the picture's borders. @returns {Rect} */
  tile(index) {
    const x = (index % this.columns) * TILE;
    const y = Math.floor(index / this.columns) * TILE;
    return { x, y, width: Math.min(TILE, this.width - x), height: Math.min(TILE, this.height - y) };
  }

  #copy(index) {
    const { x, y, width, height } = this.tile(index);
    const out = new Uint8Array(TILE * TILE);
    for (let row = 0; row < height; row++) {
      const start = (y + row) * this.width + x;
      out.set(this.data.subarray(start, start + width), row * TILE);
    }
    return out;
  }

  #paste(index, old) {
    const { x, y, width, height } = this.tile(index);
    for (let row = 0; row < height; row++) {
      this.data.set(old.subarray(row * TILE, row * TILE + width), (y + row) * this.width + x);
    }
  }

  #difference(index, old) {
    const now = this.#copy(index);
    const bits = new Uint8Array(TILE_BYTES);
    let differs = false;
    for (let i = 0; i < now.length; i++) {
      if (now[i] !== old[i]) {
        bits[i >> 3] |= 1 << (i & 7);
        differs = true;
      }
    }
    return differs ? bits : null;
  }

  #count(index) {
    const { x, y, width, height } = this.tile(index);
    let count = 0;
    for (let row = 0; row < height; row++) {
      const start = (y + row) * this.width + x;
      for (let i = start; i < start + width; i++) count += this.data[i];
    }
    return count;
  }
}

/** Bytes that a difference takes. @param {Diff} diff */
export function diffBytes(diff) {
  return diff.size * TILE_BYTES;
}
