// Changes of the whole mask: grow, shrink, invert, clear, replace. Each is called inside an edit of the mask.

import { widened } from "./window.js";

/** @typedef {import("./mask.js").Mask} Mask */

/** Adds all pixels within `radius` of a set one. @param {Mask} mask */
export function grow(mask, radius) {
  spread(mask, radius, 1);
}

/** Removes all pixels within `radius` of one that is not set; pixels beyond the picture's border count as set. */
export function shrink(mask, radius) {
  spread(mask, radius, 0);
}

/** Swaps set and not set. @param {Mask} mask */
export function invert(mask) {
  mask.touch(0, 0, mask.width, mask.height);
  const { data } = mask;
  for (let i = 0; i < data.length; i++) data[i] ^= 1;
}

/** Removes all set pixels. @param {Mask} mask */
export function clear(mask) {
  for (let index = 0; index < mask.counts.length; index++) {
    if (!mask.counts[index]) continue;
    const { x, y, width, height } = mask.tile(index);
    mask.touch(x, y, x + width, y + height);
    for (let row = y; row < y + height; row++) mask.span(row, x, x + width, 0);
  }
}

/** Writes `value` where `sent` (one byte per pixel of `rect`) is set; other pixels stay. @param {Mask} mask */
export function writeSent(mask, rect, sent, value) {
  mask.touch(rect.x, rect.y, rect.x + rect.width, rect.y + rect.height);
  for (let row = 0; row < rect.height; row++) {
    const at = (rect.y + row) * mask.width + rect.x;
    for (let column = 0; column < rect.width; column++) {
      if (sent[row * rect.width + column]) mask.data[at + column] = value;
    }
  }
}

/** Replaces the mask by another of any size, scaled by nearest neighbour. @param {Mask} mask */
export function replace(mask, source, width, height) {
  mask.touch(0, 0, mask.width, mask.height);
  const columns = Uint32Array.from({ length: mask.width }, (_, x) => Math.floor(((x + 0.5) * width) / mask.width));
  for (let y = 0; y < mask.height; y++) {
    const from = Math.floor(((y + 0.5) * height) / mask.height) * width;
    const to = y * mask.width;
    for (let x = 0; x < mask.width; x++) mask.data[to + x] = source[from + columns[x]] ? 1 : 0;
  }
}

/** Writes `value` within `radius` of every run of pixels that had it before: work grows with the runs, not the area. */
function spread(mask, radius, value) {
  const set = mask.bounds();
  if (!set) return;
  const area = widened(set, Math.ceil(radius) + 1, mask);
  const { x: left, y: top, width, height } = area;
  const [right, bottom] = [left + width, top + height];
  mask.touch(left, top, right, bottom);
  const old = mask.cut(area);
  for (let row = 0; row < height; row++) {
    const line = old.subarray(row * width, (row + 1) * width);
    for (let start = line.indexOf(value); start >= 0; ) {
      const next = line.indexOf(1 - value, start);
      const end = next < 0 ? width : next;
      for (let dy = -Math.floor(radius); dy <= radius; dy++) {
        const dx = Math.floor(Math.sqrt(radius * radius - dy * dy));
        const y = top + row + dy;
        if (y >= top && y < bottom) mask.span(y, Math.max(left, left + start - dx), Math.min(right, left + end + dx), value);
      }
      start = next < 0 ? -1 : line.indexOf(value, end);
    }
  }
}
