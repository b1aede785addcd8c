// The tools, each as pen down, moves and pen up in the picture's coordinates. Mouse, pen, finger and keyboard use them alike.

import { drawPolygon, drawRectangle, drawSegment } from "../editing/shapes.js";

/** @typedef {import("../editing/shapes.js").Point} Point */
/** @typedef {"brush" | "eraser" | "lasso" | "rectangle"} ToolName */

const LEAST_PRESSURE = 0.15;

/** A stroke from pen down to pen up. */
export class Stroke {
  /** @type {Point[]} */
  #points = [];

  /**
   * @param {import("../editing/picture.js").Picture} picture @param {ToolName} tool
   * @param {{size: number, erase: boolean}} options size: the brush's diameter in pixels of the picture
   */
  constructor(picture, tool, { size, erase }) {
    this.picture = picture;
    this.tool = tool;
    this.size = size;
    this.value = erase || tool === "eraser" ? 0 : 1;
    picture.mask.begin();
  }

  /** The line or rectangle in progress, to be outlined; empty for brushes. */
  get outline() {
    if (this.tool === "lasso") return this.#points;
    if (this.tool !== "rectangle" || this.#points.length < 2) return [];
    const [from, to] = [this.#points[0], this.#points.at(-1)];
    return [from, { x: to.x, y: from.y }, to, { x: from.x, y: to.y }];
  }

  /** Goes to a point. @param {number} pressure of a pen, 0 … 1; others 1 @returns {import("../editing/mask.js").Rect | null} changed area */
  to(point, pressure = 1) {
    const last = this.#points.at(-1) ?? point;
    if (this.tool === "lasso") {
      if (last === point || Math.hypot(point.x - last.x, point.y - last.y) >= 1) this.#points.push(point);
      return null;
    }
    if (this.tool === "rectangle") {
      this.#points = [this.#points[0] ?? point, point];
      return null;
    }
    this.#points = [point];
    const size = Math.max(1, this.size * (LEAST_PRESSURE + (1 - LEAST_PRESSURE) * pressure));
    return drawSegment(this.picture.mask, last, point, size, this.value);
  }

  /** Ends the stroke; false if it changed nothing. */
  end() {
    const { mask } = this.picture;
    if (this.tool === "lasso" && this.#points.length > 2) drawPolygon(mask, this.#points, this.value);
    if (this.tool === "rectangle" && this.#points.length > 1) {
      drawRectangle(mask, this.#points[0], this.#points[1], this.value);
    }
    return this.picture.record();
  }

  /** Reverts the stroke, for example when a second finger begins a pinch. */
  abort() {
    this.picture.mask.abort();
  }
}
