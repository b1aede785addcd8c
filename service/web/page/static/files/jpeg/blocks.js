// Fills in the blocks of a JPEG: only blocks that a fill touches are encoded again, once, with the file's own tables.

/** Index in a block of each coefficient in the order of the file (zigzag). */
const ZIGZAG = [...Array(64).keys()].sort((a, b) => diagonal(a) - diagonal(b) || (diagonal(a) & 1 ? a - b : b - a));
/** The discrete cosine transform of 8 samples, and its inverse. */
const FORWARD = Float64Array.from({ length: 64 }, (_, i) => Math.cos((((i & 7) * 2 + 1) * (i >> 3) * Math.PI) / 16) / (i < 8 ? Math.sqrt(8) : 2));
const BACK = FORWARD.map((_, i) => FORWARD[(i & 7) * 8 + (i >> 3)]);
/** Luma and chroma of red, green and blue (JFIF). */
const YCC = [[0.299, 0.587, 0.114, 0], [-0.168736, -0.331264, 0.5, 128], [0.5, -0.418688, -0.081312, 128]];
const RGB = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]];

function diagonal(i) {
  return (i & 7) + (i >> 3);
}

/**
 * Writes fills into a frame's coefficients.
 * @param {import("./reader.js").Frame} frame @param {import("../compose.js").PlainPatch[]} patches in the upright picture
 * @param {number} orientation of the stored picture, as EXIF says it
 */
export function writeFills(frame, patches, orientation) {
  const turned = patches.map((patch) => asStored(patch, orientation, frame));
  frame.components.forEach((part, i) => {
    /** @type {Map<number, Float64Array>} samples of the blocks that are touched, by the place of the block */
    const blocks = new Map();
    for (const patch of turned) writeSamples(frame, part, patch, (frame.rgb ? RGB : YCC)[i], blocks);
    const steps = frame.quantisers[part.quantiser];
    for (const [at, samples] of blocks) {
      const found = transformed(samples, FORWARD);
      ZIGZAG.forEach((place, k) => (part.values[at + k] = Math.round(found[place] / steps[k])));
    }
  });
}

/** A sample of a subsampled component stands for several pixels; it becomes their mean. */
function writeSamples(frame, part, { x, y, width, height, pixels, inside }, weights, blocks) {
  const [wide, high] = [frame.h / part.h, frame.v / part.v];
  const steps = frame.quantisers[part.quantiser];
  for (let row = Math.floor(y / high); row * high < y + height; row++) {
    for (let column = Math.floor(x / wide); column * wide < x + width; column++) {
      let [sum, count] = [0, 0];
      for (let py = Math.max(row * high, y); py < Math.min(row * high + high, y + height); py++) {
        for (let px = Math.max(column * wide, x); px < Math.min(column * wide + wide, x + width); px++) {
          const i = (py - y) * width + px - x;
          if (!inside[i]) continue;
          sum += pixels[i * 4] * weights[0] + pixels[i * 4 + 1] * weights[1] + pixels[i * 4 + 2] * weights[2] + weights[3];
          count++;
        }
      }
      if (!count) continue;
      const at = ((row >> 3) * part.columns + (column >> 3)) * 64;
      if (!blocks.has(at)) blocks.set(at, samplesOf(part.values, at, steps));
      const samples = blocks.get(at);
      const place = (row & 7) * 8 + (column & 7);
      const all = Math.min(high, frame.height - row * high) * Math.min(wide, frame.width - column * wide);
      samples[place] += (sum - 128 * count - samples[place] * count) / all;
    }
  }
}

/** Samples of a block, around 0. */
function samplesOf(values, at, steps) {
  const found = new Float64Array(64);
  ZIGZAG.forEach((place, k) => (found[place] = values[at + k] * steps[k]));
  return transformed(found, BACK);
}

function transformed(block, matrix) {
  const half = (from) => from.map((_, i) => {
    let sum = 0;
    for (let k = 0; k < 8; k++) sum += matrix[(i >> 3) * 8 + k] * from[(i & 7) * 8 + k];
    return sum;
  });
  return half(half(block));
}

/** A patch of the upright picture as it lies in the stored one. */
function asStored(patch, orientation, { width, height }) {
  if (orientation === 1) return patch;
  const swap = orientation > 4;
  const back = [2, 3, 6, 7].includes(orientation); // upright columns run against the stored ones
  const down = [3, 4, 7, 8].includes(orientation);
  const [across, along] = swap ? [height, width] : [width, height];
  const left = back ? across - patch.x - patch.width : patch.x;
  const top = down ? along - patch.y - patch.height : patch.y;
  const size = swap ? { x: top, y: left, width: patch.height, height: patch.width } : { x: left, y: top, width: patch.width, height: patch.height };
  const pixels = new Uint32Array(patch.inside.length);
  const inside = new Uint8Array(patch.inside.length);
  const source = new Uint32Array(patch.pixels.buffer, patch.pixels.byteOffset);
  for (let i = 0; i < inside.length; i++) {
    const x = i % patch.width;
    const y = Math.floor(i / patch.width);
    const column = back ? patch.width - 1 - x : x;
    const row = down ? patch.height - 1 - y : y;
    const to = swap ? column * patch.height + row : row * patch.width + column;
    pixels[to] = source[i];
    inside[to] = patch.inside[i];
  }
  return { ...size, pixels: new Uint8ClampedArray(pixels.buffer), inside };
}
