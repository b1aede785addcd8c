/** Decoding options: the file's own numbers, neither converted to the screen's colours nor multiplied by alpha. */
export const RAW = Object.freeze({ colorSpaceConversion: "none", premultiplyAlpha: "none" });

/**
 * The numbers of a bitmap, RGBA. A canvas makes transparent pixels black; WebGL keeps their colours, where there is
 * WebGL and it takes a texture of that size.
 * @param {ImageBitmap} bitmap
 */
export function pixelsOf(bitmap) {
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  for (let at = 3; at < data.length; at += 4) {
    if (data[at] < 255) return underAlpha(bitmap) ?? data;
  }
  return data;
}

function underAlpha(bitmap) {
  const gl = new OffscreenCanvas(1, 1).getContext("webgl");
  if (!gl) return null;
  const texture = gl.createTexture();
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, bitmap);
  gl.bindFramebuffer(gl.FRAMEBUFFER, gl.createFramebuffer());
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0);
  const data = new Uint8Array(bitmap.width * bitmap.height * 4);
  gl.readPixels(0, 0, bitmap.width, bitmap.height, gl.RGBA, gl.UNSIGNED_BYTE, data);
  return gl.getError() ? null : data;
}
