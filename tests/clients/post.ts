// Fills the hole of a picture, with types from /openapi.json: node post.js URL IMAGE MASK OUT

import { readFile, writeFile } from "node:fs/promises";
import { argv } from "node:process";
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

const [url, image, mask, out] = argv.slice(2) as [string, string, string, string];
const client = createClient<paths>({ baseUrl: url });

/** A file, for a part that the generated types call a string. */
async function file(path: string): Promise<string> {
  return new Blob([new Uint8Array(await readFile(path))]) as unknown as string;
}

/** Fields as a multipart form; what is left out is not sent. */
function form(fields: object = {}): FormData {
  const data = new FormData();
  for (const [name, value] of Object.entries(fields)) data.append(name, value instanceof Blob ? value : String(value));
  return data;
}

const { data, error, response } = await client.POST("/v1/inpaint", {
  body: { image: await file(image), mask: await file(mask), strategy: "crop" },
  bodySerializer: form,
  parseAs: "arrayBuffer",
});
if (error !== undefined) throw new Error(`${error.code}: ${error.detail}`);
await writeFile(out, new Uint8Array(data as unknown as ArrayBuffer)); // what `parseAs` asked for

const refused = await client.POST("/v1/generate", { body: { model: "nobodys" }, bodySerializer: form });
if (refused.error?.code !== "model_not_found") throw new Error("a problem's code has a type of its own");
console.log(JSON.stringify({ location: response.headers.get("Location") }));
