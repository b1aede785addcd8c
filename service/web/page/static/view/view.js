// The stage: three canvases on top of each other, for the picture, its mask and the tool.
//
// The picture is drawn again when it, the zoom or the divider changes; the mask only where it changed.

import { drawMask } from "./overlay.js";
import { centred, fitted, panned, toPicture, zoomed } from "./transform.js";

/** @typedef {import("../editing/picture.js").Picture} Picture */
/** @typedef {import("../editing/mask.js").Rect} Rect */

export class View {
  /** @type {Picture | null} */
  picture = null;
  transform = { scale: 1, x: 0, y: 0 };
  /** Share of the stage's width left of which the original is shown; null without a divider. @type {number | null} */
  divider = null;
  /** Whether the original is shown alone, while compare is held. */
  original = false;
  /** Draws the tool's outline; given the context, in CSS pixels of the stage. @type {(context: CanvasRenderingContext2D) => void} */
  drawTool = () => {};
  /** Called after each change of the transform. */
  onTransform = () => {};

  #stage;
  #layers;
  #size = { width: 1, height: 1 };
  #ratio = 1;
  #dirty = { picture: false, mask: /** @type {Rect | "all" | null} */ (null), tool: false };
  #frame = 0;
  #fits = true;
  #chequers; // visible through transparent pixels

  /** @param {HTMLElement} stage @param {{picture: HTMLCanvasElement, mask: HTMLCanvasElement, tool: HTMLCanvasElement}} canvases */
  constructor(stage, canvases) {
    this.#stage = stage;
    this.#layers = Object.fromEntries(Object.entries(canvases).map(([name, canvas]) => [name, canvas.getContext("2d")]));
    this.#chequers = chequers(this.#layers.picture);
    new ResizeObserver(() => this.#resize()).observe(stage);
    this.#resize();
  }

  /** Size of the stage in CSS pixels. */
  get size() {
    return this.#size;
  }

  /** Shows a picture, whole; null for none. @param {Picture | null} picture */
  show(picture) {
    this.picture = picture;
    this.fit();
  }

  fit() {
    this.#fits = true;
    if (this.picture) this.#move(fitted(this.picture, this.#size));
    else this.redraw();
  }

  /** Shows the picture at a scale, 1 for a pixel a CSS pixel, in the middle. */
  zoomTo(scale) {
    this.#fits = false;
    if (this.picture) this.#move(centred(this.picture, this.#size, scale));
  }

  /** @param {number} factor @param {{x: number, y: number}} at the point of the stage that stays */
  zoomBy(factor, at = { x: this.#size.width / 2, y: this.#size.height / 2 }) {
    this.#fits = false;
    if (this.picture) this.#move(zoomed(this.transform, factor, at, this.picture, this.#size));
  }

  panBy(dx, dy) {
    this.#fits = false;
    if (this.picture) this.#move(panned(this.transform, dx, dy, this.picture, this.#size));
  }

  /** Pans as far as a point of the picture needs to be seen. @param {{x: number, y: number}} point */
  reveal(point) {
    const { scale, x, y } = this.transform;
    const missing = (at, size) => Math.max(0, 24 - at) + Math.min(0, size - 24 - at);
    const [dx, dy] = [missing(point.x * scale + x, this.#size.width), missing(point.y * scale + y, this.#size.height)];
    if (dx || dy) this.panBy(dx, dy);
  }

  /** Pans a part of the picture up, as far as it is behind something at the bottom of the stage. @param {Rect} rect @param {DOMRect} cover */
  uncover(rect, { left, right, top }) {
    const { scale, y } = this.transform;
    const [from, to] = [this.at({ clientX: left, clientY: top }), this.at({ clientX: right, clientY: top })];
    if (rect.x > to.x || rect.x + rect.width < from.x || rect.y * scale + y > this.#size.height) return; // beside it, or not seen at all
    const up = Math.min(rect.y + rect.height - from.y, rect.y + y / scale) * scale; // its top stays on the stage
    if (up > 0) this.panBy(0, -up - 8);
  }

  /** The picture's point under a pointer. @param {{clientX: number, clientY: number}} event */
  at({ clientX, clientY }) {
    return toPicture(this.transform, this.onStage({ clientX, clientY }));
  }

  onStage({ clientX, clientY }) {
    const { left, top } = this.#stage.getBoundingClientRect();
    return { x: clientX - left, y: clientY - top };
  }

  /** Draws everything in the next frame. */
  redraw() {
    this.#dirty = { picture: true, mask: "all", tool: true };
    this.#schedule();
  }

  redrawPicture() {
    this.#dirty.picture = true;
    this.#schedule();
  }

  /** Draws a part of the mask in the next frame. @param {Rect} rect */
  redrawMask(rect) {
    const { mask } = this.#dirty;
    if (mask !== "all") this.#dirty.mask = mask ? union(mask, rect) : rect;
    this.redrawTool();
  }

  redrawTool() {
    this.#dirty.tool = true;
    this.#schedule();
  }

  #move(transform) {
    this.transform = transform;
    this.redraw();
    this.onTransform();
  }

  #schedule() {
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#frame = 0;
    const { picture, mask, tool } = this.#dirty;
    this.#dirty = { picture: false, mask: null, tool: false };
    if (picture) this.#drawPicture();
    if (mask) this.#drawMask(mask === "all" ? null : mask);
    if (tool) {
      this.#clear(this.#layers.tool);
      this.#layers.tool.setTransform(this.#ratio, 0, 0, this.#ratio, 0, 0);
      this.drawTool(this.#layers.tool);
    }
  }

  #drawPicture() {
    const context = this.#layers.picture;
    this.#clear(context);
    if (!this.picture?.bitmap) return;
    const { bitmap, preview, width, height, patches, facts } = this.picture;
    const { scale, x, y } = this.#device();
    const small = preview && scale * width <= preview.width;
    context.imageSmoothingEnabled = scale < 2; // zoomed in, single pixels stay sharp
    context.imageSmoothingQuality = "medium";
    context.drawImage(small ? preview : bitmap, x, y, width * scale, height * scale);
    context.save();
    if (this.divider !== null) {
      const edge = this.divider * context.canvas.width;
      context.beginPath();
      context.rect(edge, 0, context.canvas.width - edge, context.canvas.height);
      context.clip();
    }
    for (const patch of this.original ? [] : patches) {
      patch.draw(context, x + patch.x * scale, y + patch.y * scale, patch.width * scale, patch.height * scale);
    }
    context.restore();
    if (facts.opaque) return;
    context.globalCompositeOperation = "destination-over";
    context.fillStyle = this.#chequers;
    context.fillRect(x, y, width * scale, height * scale);
    context.globalCompositeOperation = "source-over";
  }

  #drawMask(area) {
    const context = this.#layers.mask;
    if (this.original || !this.picture) this.#clear(context);
    else drawMask(context, this.picture.mask, this.#device(), area);
  }

  #clear(context) {
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, context.canvas.width, context.canvas.height);
  }

  #device() {
    const { scale, x, y } = this.transform;
    return { scale: scale * this.#ratio, x: x * this.#ratio, y: y * this.#ratio };
  }

  #resize() {
    const { width, height } = this.#stage.getBoundingClientRect();
    this.#size = { width, height };
    this.#ratio = window.devicePixelRatio || 1;
    for (const { canvas } of Object.values(this.#layers)) {
      canvas.width = Math.max(1, Math.round(width * this.#ratio));
      canvas.height = Math.max(1, Math.round(height * this.#ratio));
    }
    if (this.#fits) this.fit();
    else this.redraw();
  }
}

/** A pattern of grey squares. @param {CanvasRenderingContext2D} context */
function chequers(context) {
  const canvas = new OffscreenCanvas(32, 32);
  const squares = canvas.getContext("2d");
  squares.fillStyle = "#ddd";
  squares.fillRect(0, 0, 32, 32);
  squares.fillStyle = "#aaa";
  for (const at of [0, 16]) squares.fillRect(at, at, 16, 16);
  return context.createPattern(canvas, "");
}

function union(a, b) {
  const x = Math.min(a.x, b.x);
  const y = Math.min(a.y, b.y);
  const width = Math.max(a.x + a.width, b.x + b.width) - x;
  return { x, y, width, height: Math.max(a.y + a.height, b.y + b.height) - y };
}
