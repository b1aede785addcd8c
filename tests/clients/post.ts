// Fills the hole of a picture, with types from /openapi.json: node post.js URL IMAGE MASK OUT

import { writeFile } from "node:fs/promises";
import { argv } from "node:process";
import createClient from "openapi-fetch";
import { file, form } from "./multipart.js";
import type { paths } from "./schema.js";

const [url, image, mask, out] = argv.slice(2) as [string, string, string, string];
const client = createClient<paths>({ baseUrl: url });

const { data, error, response } = await client.POST("/v1/inpaint", {
  body: { image: await file(image), mask: await file(mask), strategy: "crop" },
  bodySerializer: form,
  parseAs: "arrayBuffer",
});
if (error !== undefined) throw new Error(`${error.code}: ${error.detail}`);
await writeFile(out, new Uint8Array(data as unknown as ArrayBuffer)); // the type that `parseAs` requests

const refused = await client.POST("/v1/generate", { body: { model: "nobodys" }, bodySerializer: form });
if (refused.error?.code !== "model_not_found") throw new Error("a problem's code has a type of its own");
console.log(JSON.stringify({ location: response.headers.get("Location") }));
