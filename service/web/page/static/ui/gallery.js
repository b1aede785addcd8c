// The results that the server stores for this client, newest first: thumbnails, editing, saving and deletion.

import { safeName } from "../files/bytes.js";
import { download } from "../files/export.js";
import { withRetries } from "../server/retry.js";
import { explained } from "./busy.js";
import { $, element, figure } from "./dom.js";
import { say } from "./status.js";

const PAGE = "v1/results?limit=24";

export class Gallery {
  /** @type {string | null} where the next page begins; null after the last one */
  #cursor = "";
  #loading = new AbortController();
  #asking = false;
  /** Loads more results shortly before the last one becomes visible. */
  #end = new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && this.#more(), { rootMargin: "400px" });

  /** @param {import("../server/api.js").Api} api @param {(file: File) => void} edit opens a result for filling */
  constructor(api, edit) {
    Object.assign(this, { api, edit });
  }

  /** Whether the server lists results for this client; it does not for clients that it cannot tell apart. */
  async offered() {
    return this.api.get("v1/results?limit=1").then(() => true, () => false);
  }

  /** Shows the newest results. */
  reload() {
    this.#loading.abort();
    this.#loading = new AbortController();
    for (const old of [...$("kept").children]) this.#remove(old);
    this.#cursor = "";
    return this.#more();
  }

  async #more() {
    const { signal } = this.#loading;
    this.#end.disconnect();
    this.#asking = true;
    try {
      const path = this.#cursor ? `${PAGE}&cursor=${encodeURIComponent(this.#cursor)}` : PAGE;
      const { results, next_cursor } = await withRetries(() => this.api.get(path, signal), signal, (_, error) => $("panel-results").hidden || say(explained(error), true));
      this.#cursor = next_cursor;
      $("kept").append(...results.map((result) => this.#figure(result, signal)));
      this.#count();
      this.#asking = false;
      this.#watch();
    } catch (error) {
      if (signal.aborted) return; // another has begun
      this.#asking = false;
      say(explained(error), true);
    }
  }

  #watch() {
    const last = $("kept").lastElementChild;
    if (this.#cursor) last ? this.#end.observe(last) : this.#more();
  }

  #count() {
    const { length } = $("kept").children;
    $("kept-count").textContent = `${length || "No"} result${length === 1 ? "" : "s"}${this.#cursor ? ", more below" : ""}.`;
  }

  #figure({ id, created, model, width, height }, signal) {
    const path = `v1/results/${id}`;
    const caption = `${model}, ${new Date(created).toLocaleString()}`;
    const image = element("img", { alt: caption, width: width ?? 4, height: height ?? 3 });
    withRetries(() => this.api.blob(`${path}/thumbnail`, { signal }), signal, () => {}).then(
      (blob) => made.isConnected && (image.src = URL.createObjectURL(blob)), // it may be deleted by now
      () => {}, // its caption is shown instead
    );
    const wrong = (error) => {
      if (error.status === 404 || error.status === 410) this.#drop(made); // deleted elsewhere
      say(explained(error), true);
    };
    const button = (textContent, act) => element("button", { textContent, onclick: () => act().catch(wrong) });
    const file = async () => {
      const blob = await this.api.blob(path);
      return new File([blob], `${safeName(caption)}.${blob.type.slice(6).replace("jpeg", "jpg")}`, { type: blob.type });
    };
    const made = figure(
      image,
      caption,
      button("Edit", async () => this.edit(await file())),
      button("Save", async () => {
        const result = await file();
        download(result, result.name);
      }),
      button("Delete", async () => {
        if (!confirm(`Delete this result (${caption}) from the server? This cannot be undone.`)) return;
        await this.api.blob(path, { method: "DELETE" });
        this.#drop(made);
        say("Deleted.");
      }),
    );
    return made;
  }

  /** Removes a result that the server no longer has. */
  #drop(made) {
    ((made.nextSibling ?? made.previousSibling)?.querySelector("button") ?? $("tab-results")).focus();
    this.#remove(made);
    this.#count();
    if (!this.#asking) this.#watch(); // it may have been the one that was watched
  }

  #remove(made) {
    URL.revokeObjectURL(made.querySelector("img").src);
    made.remove();
  }
}
