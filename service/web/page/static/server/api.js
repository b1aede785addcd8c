// Calls of the public API, and its errors.

import { asciiBytes, copied } from "../files/bytes.js";
import { currentKey, rememberKey } from "./key.js";

/** A reply that says why there is no result (RFC 9457). */
export class Refusal extends Error {
  /** @param {Response} response @param {{detail?: string, code?: string, request_id?: string}} problem */
  constructor(response, problem) {
    super(problem.detail || (response.status === 413 ? "The file is too large for this server." : `The server answered ${response.status}.`));
    this.status = response.status;
    this.code = problem.code ?? "";
    this.requestId = problem.request_id ?? null;
    const seconds = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
    /** Seconds of Retry-After; null if it is missing or 0. */
    this.retryAfter = seconds > 0 ? seconds : null;
  }
}

/** The server could not be reached at all. */
export class Unreachable extends Error {
  constructor() {
    super("The server cannot be reached.");
  }
}

export class Api {
  #askForKey;
  #asking = null;
  /** Called when the server no longer has the model that was asked for. */
  onModelGone = () => {};

  /** @param {(reason: string) => Promise<boolean>} askForKey asks the person; false if they gave none */
  constructor(askForKey) {
    this.#askForKey = askForKey;
  }

  /** GET of JSON; throws a SyntaxError if the reply is not JSON. @param {string} path relative to the page, so that it works behind a prefix */
  async get(path, signal) {
    return (await this.#send(path, { signal })).json();
  }

  /** Whether the server still loads models, or starts a part of itself again. */
  async loading() {
    return this.get("readyz").then(() => false, ({ status }) => status === 503);
  }

  /** The bytes of a file. */
  async blob(path, options = {}) {
    return (await this.#send(path, options)).blob();
  }

  /**
   * POST of a form.
   * @param {string} path @param {Record<string, string | {blob: Blob, name: string}>} fields
   * @param {{signal: AbortSignal, onSent: (event: ProgressEvent) => void, requestId?: string | null, accept?: string}} options
   *     onSent: called with progress; requestId: id of the refusal, for which the server has a reservation
   */
  async post(path, fields, { signal, onSent, requestId, accept = "image/png" }) {
    const body = new FormData();
    for (const [name, value] of Object.entries(fields)) {
      if (typeof value === "string") body.append(name, value);
      else body.append(name, await copied(value.blob, value.name), value.name); // else a deleted file would look like a lost server
    }
    const headers = { Accept: accept, ...(requestId ? { "X-Request-ID": requestId } : {}) };
    return this.#send(path, { body, headers, signal, onSent }, posted);
  }

  async #send(path, options, send = fetch) {
    const key = currentKey();
    const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    let response;
    try {
      response = await send(path, { ...options, headers, credentials: "omit", cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Unreachable();
    }
    if (response.ok) return response;
    const refusal = new Refusal(response, await response.json().catch(() => ({})));
    // the key may have been entered meanwhile, for another call
    if (refusal.status === 401 && (currentKey() !== key || (await this.#keyGiven(refusal.message)))) {
      return this.#send(path, options, send);
    }
    // the key lacks the right to compute: the next call asks for another key
    if (refusal.status === 403 && refusal.code === "forbidden" && !path.startsWith("v1/results")) rememberKey("");
    if (refusal.code === "model_not_found") this.onModelGone();
    throw refusal;
  }

  /** Asks for a key once, however many calls wait for it. */
  #keyGiven(reason) {
    this.#asking ??= this.#askForKey(reason).finally(() => {
      this.#asking = null;
    });
    return this.#asking;
  }
}

/** `fetch` of a POST with progress of sending, which only XMLHttpRequest reports. @returns {Promise<Response>} */
function posted(path, { body, headers, signal, onSent }) {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const request = new XMLHttpRequest();
    request.open("POST", path);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.responseType = "blob";
    request.upload.onprogress = onSent;
    request.onload = () => {
      const response = new Response(request.response.size ? request.response : null, request); // a 204 may have no body at all
      for (const name of ["X-Seed", "Retry-After"]) response.headers.set(name, request.getResponseHeader(name) ?? "");
      resolve(response);
    };
    request.onloadend = reject; // without a reply: also where the browser itself stops all that it loads
    signal.onabort = () => {
      reject(signal.reason);
      request.abort();
    };
    request.send(body);
  });
}

/** The PNG of a reply, or all of them where several samples were asked for; a SyntaxError where there is none. @returns {Promise<{blobs: Blob[], seed: string | null}>} */
export async function pictures(response) {
  if (!response.headers.get("Content-Type")?.includes("json")) {
    const blob = await response.blob();
    if (!blob.type.startsWith("image/")) throw new SyntaxError();
    return { blobs: [blob], seed: response.headers.get("X-Seed") };
  }
  const reply = await response.json();
  const images = reply.images ?? [reply];
  return { blobs: images.map((image) => fromBase64(image.image_base64, reply.media_type)), seed: `${reply.seed ?? ""}` };
}

function fromBase64(text, type) {
  return new Blob([asciiBytes(atob(text))], { type });
}
