// The part of a picture that is sent for a fill.
//
// A small picture is sent whole, so that its fill equals that of the API. Of a large one only the surroundings of the
// mask are sent: to remove a wire, 50 megapixels would take half a minute without giving the model more to go by.

/** @typedef {import("./mask.js").Rect} Rect */

/** Largest picture that is sent whole, in pixels. */
export const MOST_WHOLE_PIXELS = 3_000_000;
/** Largest part sent of a larger picture, if the mask allows it, as servers and proxies have size limits. */
const MOST_SENT_PIXELS = 24_000_000;
const LEAST_CONTEXT = 256;

/**
 * The rectangle to send for a mask.
 * @param {{width: number, height: number}} picture @param {Rect} hole bounds of the mask @returns {Rect}
 */
export function windowFor({ width, height }, hole) {
  if (width * height <= MOST_WHOLE_PIXELS) return { x: 0, y: 0, width, height };
  for (let margin = Math.max(LEAST_CONTEXT, hole.width, hole.height); ; margin >>= 1) {
    const area = widened(hole, margin, { width, height });
    if (area.width * area.height <= MOST_SENT_PIXELS || margin < 2 * LEAST_CONTEXT) return area;
  }
}

/** A rectangle with a margin of whole pixels around it, inside the picture. @param {Rect} rect @returns {Rect} */
export function widened(rect, margin, { width, height }) {
  const x = Math.max(0, rect.x - margin);
  const y = Math.max(0, rect.y - margin);
  const right = Math.min(width, rect.x + rect.width + margin);
  const bottom = Math.min(height, rect.y + rect.height + margin);
  return { x, y, width: right - x, height: bottom - y };
}
