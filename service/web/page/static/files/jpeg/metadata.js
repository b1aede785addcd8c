// EXIF and colour profile of the original, put into a freshly encoded JPEG.

import { asciiBytes } from "../bytes.js";
import { jpegSegments, joined, orientationAt } from "../inspect.js";
import { segment } from "./writer.js";

const MOST_PROFILE = 65519; // bytes of a profile that fit one segment

/**
 * Adds the original's EXIF and profile.
 * @param {Uint8Array} encoded a JPEG @param {import("../inspect.js").Facts} facts of the original
 * @param {boolean} upright whether its pixels are upright now, whatever EXIF said of the original's
 */
export function withMetadata(encoded, { exif, icc }, upright) {
  const kept = [];
  let pixels = 2;
  for (const { marker, start, data } of jpegSegments(encoded)) {
    if (marker === 0xda) break;
    pixels = start + 4 + data.length;
    // the browser's own EXIF and profile would contradict the original's
    if (marker !== 0xe1 && marker !== 0xe2) kept.push(encoded.subarray(start, pixels));
  }
  return joined([
    Uint8Array.of(0xff, 0xd8),
    ...(kept[0]?.[1] === 0xe0 ? kept.splice(0, 1) : []), // JFIF comes first
    ...(exif ? exifSegment(exif, upright) : []),
    ...(icc ? profileSegments(icc) : []),
    ...kept,
    encoded.subarray(pixels),
  ]);
}

function exifSegment(exif, upright) {
  if (exif.length > 65525) return [];
  const changed = withoutSmallPictures(exif);
  const { at } = orientationAt(changed);
  if (upright && at >= 0) changed[at] = 1;
  return [segment(0xe1, [...asciiBytes("Exif\0\0"), ...changed])];
}

/** EXIF without thumbnails, including those in maker notes, as they show the removed content. */
function withoutSmallPictures(exif) {
  const changed = exif.slice();
  const { next } = orientationAt(exif);
  changed.fill(0, next, next + 4);
  for (let at = 0; at < changed.length; at++) {
    // the beginning of a JPEG, up to its end
    if (changed[at] !== 0xff || changed[at + 1] !== 0xd8 || changed[at + 2] !== 0xff || changed[at + 3] < 0xc0) continue;
    let end = at + 4;
    while (end < changed.length && !(changed[end - 2] === 0xff && changed[end - 1] === 0xd9)) end++;
    changed.fill(0, at, end);
  }
  return changed;
}

function profileSegments(icc) {
  const count = Math.ceil(icc.length / MOST_PROFILE);
  return Array.from({ length: count }, (_, i) => segment(0xe2, [...asciiBytes("ICC_PROFILE\0"), i + 1, count, ...icc.subarray(i * MOST_PROFILE, (i + 1) * MOST_PROFILE)]));
}
