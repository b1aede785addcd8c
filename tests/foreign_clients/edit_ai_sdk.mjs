// Fills the hole of a picture with the AI SDK: node edit_ai_sdk.mjs BASE_URL IMAGE MASK OUT

import { readFile, writeFile } from "node:fs/promises";
import { argv } from "node:process";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateImage } from "ai";

const [baseURL, image, mask, out] = argv.slice(2);
const provider = createOpenAICompatible({ name: "retouch", baseURL, apiKey: "none" });
const reply = await generateImage({
  model: provider.imageModel("photos"),
  prompt: { text: "", images: [await readFile(image)], mask: await readFile(mask) },
  maxRetries: 0,
});
await writeFile(out, reply.image.uint8Array);
