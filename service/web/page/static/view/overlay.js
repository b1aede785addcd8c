// The mask over the picture, at the screen's resolution: only what changed, and only tiles that have set pixels.

import { TILE } from "../editing/mask.js";

/** Colours of the hatching, which is visible on pictures of any colour. */
const COLOURS = [[236, 43, 116], [150, 20, 90]];
const OPACITY = 150;

/**
 * Draws a part of the mask.
 * @param {CanvasRenderingContext2D} context of a canvas in device pixels
 * @param {import("../editing/mask.js").Mask} mask
 * @param {import("./transform.js").Transform} transform picture to device pixels
 * @param {import("../editing/mask.js").Rect | null} area in picture pixels; null for all of it
 */
export function drawMask(context, mask, transform, area) {
  const { canvas } = context;
  const target = area ? onScreen(area, transform, canvas) : { x: 0, y: 0, width: canvas.width, height: canvas.height };
  if (target.width <= 0 || target.height <= 0) return;
  context.clearRect(target.x, target.y, target.width, target.height);
  const { scale, x, y } = transform;
  const column = (at) => Math.floor((at + 0.5 - x) / scale / TILE);
  const row = (at) => Math.floor((at + 0.5 - y) / scale / TILE);
  const lastRow = Math.min(mask.rows - 1, row(target.y + target.height - 1));
  const lastColumn = Math.min(mask.columns - 1, column(target.x + target.width - 1));
  for (let r = Math.max(0, row(target.y)); r <= lastRow; r++) {
    for (let c = Math.max(0, column(target.x)); c <= lastColumn; c++) {
      const index = r * mask.columns + c;
      if (mask.occupied(index)) drawTile(context, mask, transform, mask.tile(index), target);
    }
  }
}

/** Device pixels that show a rectangle of the picture, cut at the canvas. */
function onScreen({ x, y, width, height }, transform, canvas) {
  const left = Math.max(0, Math.floor(x * transform.scale + transform.x) - 2);
  const top = Math.max(0, Math.floor(y * transform.scale + transform.y) - 2);
  const right = Math.min(canvas.width, Math.ceil((x + width) * transform.scale + transform.x) + 2);
  const bottom = Math.min(canvas.height, Math.ceil((y + height) * transform.scale + transform.y) + 2);
  return { x: left, y: top, width: right - left, height: bottom - top };
}

function drawTile(context, mask, { scale, x, y }, tile, target) {
  // device pixels whose centre lies in the tile
  const left = Math.max(target.x, Math.ceil(tile.x * scale + x - 0.5));
  const top = Math.max(target.y, Math.ceil(tile.y * scale + y - 0.5));
  const right = Math.min(target.x + target.width, Math.ceil((tile.x + tile.width) * scale + x - 0.5));
  const bottom = Math.min(target.y + target.height, Math.ceil((tile.y + tile.height) * scale + y - 0.5));
  if (right <= left || bottom <= top) return;
  const image = context.createImageData(right - left, bottom - top);
  const pixels = new Uint32Array(image.data.buffer);
  // zoomed out, several samples a pixel, so that thin lines stay visible
  const samples = scale >= 0.75 ? 1 : scale >= 0.35 ? 2 : 3;
  const shades = COLOURS.map((colour) => shadesFor(samples, colour));
  const columns = sampleColumns(mask, left, right, samples, scale, x);
  for (let row = top; row < bottom; row++) {
    const to = (row - top) * image.width;
    for (let s = 0; s < samples; s++) {
      const sy = Math.min(mask.height - 1, Math.max(0, Math.floor((row + (s + 0.5) / samples - y) / scale)));
      const line = sy * mask.width;
      for (let i = 0; i < columns.length; i++) pixels[to + Math.floor(i / samples)] += mask.data[line + columns[i]];
    }
    for (let i = 0; i < image.width; i++) pixels[to + i] = shades[((left + i + row) >> 3) & 1][pixels[to + i]];
  }
  context.putImageData(image, left, top);
}

function sampleColumns(mask, left, right, samples, scale, x) {
  return Uint32Array.from({ length: (right - left) * samples }, (_, i) => {
    const at = Math.floor((left + (i + 0.5) / samples - x) / scale);
    return Math.min(mask.width - 1, Math.max(0, at));
  });
}

/** Colour of a pixel by the number of its samples that are set; one of nine is still seen. */
function shadesFor(samples, colour) {
  const most = samples * samples;
  const shades = new Uint32Array(most + 1);
  const bytes = new Uint8Array(shades.buffer);
  for (let n = 1; n <= most; n++) bytes.set([...colour, Math.round(OPACITY * Math.min(1, 0.45 + (0.55 * n) / most))], n * 4);
  return shades;
}
