// Shapes drawn into a mask, as spans of rows. Coordinates are pixels of the picture; pixel (0, 0) spans [0, 1) × [0, 1).

/** @typedef {{x: number, y: number}} Point */
/** @typedef {import("./mask.js").Mask} Mask */
/** @typedef {import("./mask.js").Rect} Rect */

/**
 * Draws the area that a disk covers on its way from one point to another.
 * @param {Mask} mask @param {Point} from @param {Point} to
 * @param {number} size diameter in pixels; at 1, the pixels that the line passes
 * @param {0 | 1} value
 * @returns {Rect} the changed area
 */
export function drawSegment(mask, from, to, size, value) {
  const radius = Math.max(size / 2, 0.5);
  const box = around(mask, [from, to], radius + 1);
  mask.touch(box.x, box.y, box.x + box.width, box.y + box.height);
  if (size < 2) {
    const steps = Math.max(1, Math.ceil(Math.max(Math.abs(to.x - from.x), Math.abs(to.y - from.y)) * 2));
    for (let i = 0; i <= steps; i++) {
      const x = Math.floor(from.x + ((to.x - from.x) * i) / steps);
      mask.span(Math.floor(from.y + ((to.y - from.y) * i) / steps), x, x + 1, value);
    }
    return box;
  }
  for (let row = box.y; row < box.y + box.height; row++) {
    const [start, end] = capsuleSpan(from, to, radius, row + 0.5);
    // a pixel belongs to the shape if its centre does
    if (end >= start) mask.span(row, Math.ceil(start - 0.5), Math.floor(end - 0.5) + 1, value);
  }
  return box;
}

/** The range of x in which the line at height y lies inside a capsule; empty if it misses the capsule. */
function capsuleSpan(a, b, radius, y) {
  let [start, end] = [Infinity, -Infinity];
  const add = (from, to) => {
    start = Math.min(start, from);
    end = Math.max(end, to);
  };
  for (const point of [a, b]) {
    const height = radius * radius - (y - point.y) ** 2;
    if (height >= 0) add(point.x - Math.sqrt(height), point.x + Math.sqrt(height));
  }
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const length = Math.hypot(dx, dy);
  if (length > 0) {
    // the rectangle between the two disks: cut its four sides
    const [nx, ny] = [(-dy / length) * radius, (dx / length) * radius];
    const corners = [
      [a.x + nx, a.y + ny],
      [b.x + nx, b.y + ny],
      [b.x - nx, b.y - ny],
      [a.x - nx, a.y - ny],
    ];
    corners.forEach(([x0, y0], i) => {
      const [x1, y1] = corners[(i + 1) % 4];
      if ((y0 <= y && y1 >= y) || (y1 <= y && y0 >= y)) {
        const x = y1 === y0 ? x0 : x0 + ((y - y0) / (y1 - y0)) * (x1 - x0);
        add(x, x);
      }
    });
  }
  return [start, end];
}

/** Draws the inside of a closed line (even-odd rule). @param {Mask} mask @param {Point[]} points @returns {Rect} */
export function drawPolygon(mask, points, value) {
  const box = around(mask, points, 1);
  mask.touch(box.x, box.y, box.x + box.width, box.y + box.height);
  for (let row = box.y; row < box.y + box.height; row++) {
    const y = row + 0.5;
    const crossings = [];
    points.forEach((from, i) => {
      const to = points[(i + 1) % points.length];
      if (from.y <= y !== to.y <= y) crossings.push(from.x + ((y - from.y) / (to.y - from.y)) * (to.x - from.x));
    });
    crossings.sort((a, b) => a - b);
    for (let i = 0; i + 1 < crossings.length; i += 2) {
      mask.span(row, Math.ceil(crossings[i] - 0.5), Math.floor(crossings[i + 1] - 0.5) + 1, value);
    }
  }
  return box;
}

/** Draws the rectangle between two corners, whole pixels. @param {Mask} mask @returns {Rect} */
export function drawRectangle(mask, from, to, value) {
  const left = Math.max(0, Math.floor(Math.min(from.x, to.x)));
  const top = Math.max(0, Math.floor(Math.min(from.y, to.y)));
  const right = Math.min(mask.width, Math.ceil(Math.max(from.x, to.x)));
  const bottom = Math.min(mask.height, Math.ceil(Math.max(from.y, to.y)));
  mask.touch(left, top, right, bottom);
  for (let row = top; row < bottom; row++) mask.span(row, left, right, value);
  return { x: left, y: top, width: Math.max(0, right - left), height: Math.max(0, bottom - top) };
}

/** The rectangle of whole pixels around points and a margin, inside the picture. */
function around(mask, points, margin) {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const { x, y } of points) {
    left = Math.min(left, x);
    top = Math.min(top, y);
    right = Math.max(right, x);
    bottom = Math.max(bottom, y);
  }
  const x = Math.min(mask.width, Math.max(0, Math.floor(left - margin)));
  const y = Math.min(mask.height, Math.max(0, Math.floor(top - margin)));
  const width = Math.max(0, Math.min(mask.width, Math.ceil(right + margin)) - x);
  return { x, y, width, height: Math.max(0, Math.min(mask.height, Math.ceil(bottom + margin)) - y) };
}
