// Multipart bodies for openapi-fetch: pass `bodySerializer: form`, and files as `await file(path)`.

import { readFile } from "node:fs/promises";

/** A file, for a part that the generated types call a string. */
export async function file(path: string): Promise<string> {
  return new Blob([new Uint8Array(await readFile(path))]) as unknown as string;
}

/** Fields as a multipart form; what is left out is not sent. */
export function form(fields: object = {}): FormData {
  const data = new FormData();
  for (const [name, value] of Object.entries(fields)) data.append(name, value instanceof Blob ? value : String(value));
  return data;
}
