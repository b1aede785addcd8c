// EXIF and colour profile of the original, put into a freshly encoded JPEG.

import { inspect, jpegSegments, joined, orientationAt } from "./inspect.js";

const MOST_PROFILE = 65519; // bytes of a profile that fit one segment

/**
 * Adds the original's EXIF (upright now, as the pixels are) and profile.
 * @param {Uint8Array} encoded a JPEG @param {import("./inspect.js").Facts} facts of the original
 */
export function withMetadata(encoded, { exif, icc }) {
  const kept = [];
  let pixels = 2;
  for (const { marker, start, data } of jpegSegments(encoded)) {
    pixels = start + 4 + data.length;
    // the browser's own EXIF and profile would contradict the original's
    if (marker !== 0xe1 && marker !== 0xe2) kept.push(encoded.subarray(start, pixels));
  }
  return joined([
    Uint8Array.of(0xff, 0xd8),
    ...(kept.length && inspect(encoded) ? kept.splice(0, 1) : []), // JFIF comes first
    ...(exif ? exifSegment(exif) : []),
    ...(icc ? profileSegments(icc) : []),
    ...kept,
    encoded.subarray(pixels),
  ]);
}

function exifSegment(exif) {
  if (exif.length > 65525) return [];
  const upright = exif.slice();
  const { at } = orientationAt(upright);
  if (at >= 0) upright[at] = 1;
  return [segment(0xe1, [Uint8Array.of(0x45, 0x78, 0x69, 0x66, 0, 0), upright])];
}

function profileSegments(icc) {
  const count = Math.ceil(icc.length / MOST_PROFILE);
  const name = Uint8Array.from("ICC_PROFILE\0", (letter) => letter.charCodeAt(0));
  return Array.from({ length: count }, (_, i) =>
    segment(0xe2, [name, Uint8Array.of(i + 1, count), icc.subarray(i * MOST_PROFILE, (i + 1) * MOST_PROFILE)]),
  );
}

function segment(marker, parts) {
  const data = joined(parts);
  return joined([Uint8Array.of(0xff, marker, (data.length + 2) >> 8, (data.length + 2) & 255), data]);
}
