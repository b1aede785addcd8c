// The view's transform: picture pixels to CSS pixels of the stage. Pure.

const LARGEST_SCALE = 32;
const MOST_ENLARGED = 2;

/** @typedef {{scale: number, x: number, y: number}} Transform x, y: where the picture's corner is on the stage */
/** @typedef {{width: number, height: number}} Size */

/** The whole picture in the middle of the stage; a small one is enlarged, up to a limit. @param {Size} picture @param {Size} stage @returns {Transform} */
export function fitted(picture, stage, margin = 16) {
  const room = { width: Math.max(1, stage.width - 2 * margin), height: Math.max(1, stage.height - 2 * margin) };
  const scale = Math.min(MOST_ENLARGED, room.width / picture.width, room.height / picture.height);
  return centred(picture, stage, scale);
}

export function centred(picture, stage, scale) {
  return { scale, x: (stage.width - picture.width * scale) / 2, y: (stage.height - picture.height * scale) / 2 };
}

/** Zooms by a factor; the picture's point under `at` stays there. */
export function zoomed(transform, factor, at, picture, stage) {
  const smallest = Math.min(fitted(picture, stage).scale, 1) / 4;
  const scale = Math.min(LARGEST_SCALE, Math.max(smallest, transform.scale * factor));
  const ratio = scale / transform.scale;
  const moved = { scale, x: at.x - (at.x - transform.x) * ratio, y: at.y - (at.y - transform.y) * ratio };
  return clamped(moved, picture, stage);
}

export function panned(transform, dx, dy, picture, stage) {
  return clamped({ ...transform, x: transform.x + dx, y: transform.y + dy }, picture, stage);
}

/** Keeps at least a strip of the picture on the stage. */
function clamped({ scale, x, y }, picture, stage) {
  const keep = 48;
  const within = (value, size, space) => Math.min(space - keep, Math.max(keep - size * scale, value));
  return { scale, x: within(x, picture.width, stage.width), y: within(y, picture.height, stage.height) };
}

/** The picture's point at a point of the stage. */
export function toPicture({ scale, x, y }, point) {
  return { x: (point.x - x) / scale, y: (point.y - y) / scale };
}
