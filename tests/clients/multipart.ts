// Multipart bodies for openapi-fetch: pass `bodySerializer: form`, and files as `await file(path)`.

import { readFile } from "node:fs/promises";

/** Reads a file for a part, which the generated types declare as a string. */
export async function file(path: string): Promise<string> {
  return new Blob([new Uint8Array(await readFile(path))]) as unknown as string;
}

/** Returns the fields as a multipart form. */
export function form(fields: object = {}): FormData {
  const data = new FormData();
  for (const [name, value] of Object.entries(fields)) data.append(name, value instanceof Blob ? value : String(value));
  return data;
}
