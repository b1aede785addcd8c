// One fill: the request that is sent, and the use of its reply.

import { maskPng } from "../files/png_writer.js";
import { pictures } from "../server/api.js";
import { writeSent } from "./morphology.js";
import { Patch } from "./picture.js";
import { RAW } from "./raw.js";
import { windowFor } from "./window.js";

/** @typedef {import("./picture.js").Picture} Picture */

/** Form fields of a fill that the person can choose. @typedef {{model?: string, samples?: string, texture?: string, seed?: string}} Choice */

/**
 * A snapshot of the data that a fill needs, as painting goes on while the fill is computed.
 * @param {Picture} picture
 */
export async function prepared(picture) {
  const hole = picture.mask.bounds();
  if (!hole) throw new Error("Nothing is painted.");
  const area = windowFor(picture, hole);
  const sent = picture.mask.cut(hole);
  const mask = picture.mask.cut(area);
  if (!mask.includes(0)) throw new Error("The whole picture is painted, so there is nothing to fill from: erase part of the mask.");
  const shown = async () => {
    await picture.load(); // another picture may be shown by now
    return picture.render(area).convertToBlob({ type: "image/png" });
  };
  const untouched = picture.patches.length === 0 && picture.facts.orientation === 1;
  const whole = area.width === picture.width && area.height === picture.height;
  // the file itself if the picture is unchanged, as encoding it again would only cost time
  const image = whole && untouched ? picture.file : await shown();
  return { hole, area, sent, image, shown, mask: await maskPng(mask, area.width, area.height) };
}

/**
 * Asks the server for a fill.
 * @param {import("../server/api.js").Api} api @param {Choice} choice
 * @returns {Promise<{patches: Patch[], seed: string | null}>} one for each sample
 */
export async function requested(api, { hole, area, sent, image, shown, mask }, choice, options) {
  const accept = Number(choice.samples ?? 1) > 1 ? "application/json" : "image/png";
  const send = (blob) => {
    const fields = {
      image: { blob, name: "image" },
      mask: { blob: mask, name: "mask.png" },
      format: "png",
      save: "false", // the page keeps its results itself
      ...choice,
    };
    return api.post("v1/inpaint", fields, { ...options, accept });
  };
  const reply = await send(image).catch(async (error) => {
    if (error.code !== "invalid_image") throw error;
    return send(await shown()); // the server is stricter than the browser, for example about a wrong checksum in a PNG
  });
  const { blobs, seed } = await pictures(reply);
  const patches = [];
  for (const blob of blobs) patches.push(await patchOf(blob, hole, area, sent));
  return { patches, seed };
}

/** Adds the first of the fills to the picture and clears the mask that was sent, as one entry of the history. */
export function applied(picture, { hole, sent }, variants, joinTo) {
  const [patch] = variants;
  picture.mask.begin();
  writeSent(picture.mask, hole, sent, 0);
  const diff = picture.mask.commit();
  picture.patches = [...picture.patches, patch];
  const changes = [{ patch, variants }, ...(diff ? [{ diff }] : [])];
  // a stroke that was filled on release is one step, together with its fill
  if (joinTo && picture.history.last === joinTo) joinTo.changes.push(...changes);
  else picture.history.push({ changes });
}

async function patchOf(blob, hole, area, sent) {
  const bitmap = await createImageBitmap(blob, RAW).catch(() => {
    throw new SyntaxError(); // truncated in transit, or not a picture
  });
  const canvas = new OffscreenCanvas(hole.width, hole.height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, area.x - hole.x, area.y - hole.y);
  bitmap.close();
  const { data } = context.getImageData(0, 0, hole.width, hole.height);
  for (let i = 0; i < sent.length; i++) {
    if (!sent[i]) data.fill(0, i * 4, i * 4 + 4);
  }
  return new Patch(hole, data, sent);
}
