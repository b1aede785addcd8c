/** Decoding options: the file's own numbers, neither converted to the screen's colours nor multiplied by alpha. */
export const RAW = Object.freeze({ colorSpaceConversion: "none", premultiplyAlpha: "none" });
