// The part of a picture that is sent for a fill.
//
// A small picture goes whole, so that its fill is the one that the API gives. Of a large one the surroundings of the
// mask are sent: 50 megapixels for a wire would take half a minute and show the model nothing more.

/** @typedef {import("./mask.js").Rect} Rect */

/** Largest picture that is sent whole, in pixels. */
export const MOST_WHOLE_PIXELS = 3_000_000;
const LEAST_CONTEXT = 256;

/**
 * The rectangle to send for a mask.
 * @param {{width: number, height: number}} picture @param {Rect} hole bounds of the mask @returns {Rect}
 */
export function windowFor({ width, height }, hole) {
  if (width * height <= MOST_WHOLE_PIXELS) return { x: 0, y: 0, width, height };
  const context = Math.max(LEAST_CONTEXT, Math.ceil(Math.max(hole.width, hole.height)));
  const x = Math.max(0, hole.x - context);
  const y = Math.max(0, hole.y - context);
  const right = Math.min(width, hole.x + hole.width + context);
  const bottom = Math.min(height, hole.y + hole.height + context);
  return { x, y, width: right - x, height: bottom - y };
}
