// Fills the hole of a picture with the openai package: node edit.mjs BASE_URL IMAGE MASK OUT

import { createReadStream } from "node:fs";
import { writeFile } from "node:fs/promises";
import { argv } from "node:process";
import OpenAI from "openai";

const [baseURL, image, mask, out] = argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const reply = await client.images.edit({
  image: createReadStream(image),
  mask: createReadStream(mask),
  prompt: "",
  model: "photos",
});
await writeFile(out, Buffer.from(reply.data[0].b64_json, "base64"));
const names = [];
for await (const model of client.models.list()) names.push(model.id);
if (!names.includes("photos")) throw new Error(`the models are ${names}`);
