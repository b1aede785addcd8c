// Long work, most of it on the server: elapsed time, a busy server's waiting time, and the button that cancels.

import { withRetries } from "../server/retry.js";
import { Refusal } from "../server/api.js";
import { $, hide } from "./dom.js";
import { say } from "./status.js";

export class Busy {
  /** @type {AbortController | null} */
  #running = null;
  #text = () => "";
  #timer = 0;
  /** The picture for which the work is done, if known. */
  subject = null;
  /** Called after each piece of work, once its result was announced, with the picture for which it failed. @type {(failed: any) => void} */
  onEnd = () => {};

  constructor() {
    $("cancel").onclick = () => this.cancel();
  }

  get running() {
    return this.#running !== null;
  }

  /** Cancels what runs; the server computes nothing for a client that hung up. */
  cancel() {
    this.#running?.abort();
  }

  /**
   * Does one piece of work at a time, and repeats a call that a busy server refused.
   * @template T
   * @param {string} label what is done, such as "Filling"
   * @param {(call: <R>(send: (options: {signal: AbortSignal, requestId: string | null, onSent: (event: ProgressEvent) => void}) => Promise<R>, closing?: AbortSignal) => Promise<R>, name: (label: string) => void, cancelled: AbortSignal) => Promise<T>} work
   * @returns {Promise<T | null>} null if it failed or was cancelled, which was said then
   */
  async run(label, work) {
    if (this.#running) {
      say("Other work is still running: wait for it or cancel it.", true);
      return null;
    }
    const { signal } = (this.#running = new AbortController());
    let named = label;
    const since = Date.now();
    const name = (text = named) => {
      named = text;
      this.#show(() => `${named}… ${Math.floor((Date.now() - since) / 1000)} s`);
    };
    name();
    say(`${label}.`, false, false); // the line beside the button shows it
    const onSent = ({ loaded, total }) => (loaded < total ? this.#show(() => `${named}: ${share(loaded, total)} sent`) : name());
    const call = (send, closing = signal) => {
      const ended = AbortSignal.any([signal, closing]);
      const attempt = (requestId) => {
        name();
        return send({ signal: ended, requestId, onSent });
      };
      return withRetries(attempt, ended, (seconds, error) => this.#wait(seconds, error));
    };
    let made = null;
    try {
      return (made = await work(call, name, signal));
    } catch (error) {
      if (signal.aborted || error.name === "AbortError") say("Cancelled.");
      else say(explained(error), true);
      return null;
    } finally {
      const failed = made ? null : this.subject;
      this.#running = this.subject = null;
      this.#hide();
      setTimeout(() => this.onEnd(failed));
    }
  }

  #wait(seconds, error) {
    const until = Date.now() + seconds * 1000;
    const refusal = error.status === 429 ? "Too many requests were sent" : `The server is ${error.code === "not_ready" ? "starting" : "busy"}`;
    const reason = error instanceof Refusal ? refusal : error.message.replace(/\.$/, "");
    this.#show(() => `${reason}: trying again in ${Math.max(0, Math.ceil((until - Date.now()) / 1000))} s`);
    say(`${reason}: trying again in ${seconds} s`, false, false);
  }

  #show(text) {
    this.#text = text;
    const write = () => ($("busy-text").textContent = this.#text());
    write();
    $("busy").hidden = false;
    clearInterval(this.#timer);
    this.#timer = setInterval(write, 250);
  }

  #hide() {
    clearInterval(this.#timer);
    hide($("busy"));
  }
}

/** An error as a sentence for people. @param {Error} error */
export function explained(error) {
  if (error instanceof SyntaxError) return "The reply is empty, or does not come from this server.";
  if (!(error instanceof Refusal)) return error.message;
  const plain = error.message.replaceAll("`", ""); // which mark the names of fields, for programmers
  const text = plain.charAt(0).toUpperCase() + plain.slice(1);
  const when = error.retryAfter === null ? "" : ` Try again in ${duration(error.retryAfter)}.`;
  return text.replace(/[^.!?]$/, "$&.") + when;
}

/** For instance `0.4 of 2.1 MB`. */
function share(part, whole) {
  const [unit, bytes, digits] = whole < 1e6 ? ["kB", 1e3, 0] : ["MB", 1e6, 1];
  return `${(part / bytes).toFixed(digits)} of ${(whole / bytes).toFixed(digits)} ${unit}`;
}

function duration(seconds) {
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} minutes` : `${Math.round(seconds / 3600)} hours`;
}
