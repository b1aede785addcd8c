// The tasks as tabs, and the model chosen for each. A task that no model does is not shown.

import { $, element } from "./dom.js";

const TASKS = ["inpaint", "translate", "generate"];

/** Event: `change` when another task or model is chosen. */
export class Tabs extends EventTarget {
  task = "inpaint";
  /** @type {Record<string, import("../server/models.js").Model[]>} */
  #models = { inpaint: [], translate: [], generate: [] };
  /** @type {Record<string, string>} key of the chosen model by task */
  #chosen = {};

  constructor() {
    super();
    for (const task of TASKS) $(`tab-${task}`).addEventListener("click", () => this.choose(task));
    $("tabs").addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const shown = TASKS.filter((task) => !$(`tab-${task}`).hidden);
      const next = step && shown[(shown.indexOf(this.task) + step + shown.length) % shown.length];
      if (!next) return;
      this.choose(next);
      $(`tab-${next}`).focus();
    });
    $("model").addEventListener("change", () => {
      this.#chosen[this.task] = $("model").value;
      this.dispatchEvent(new Event("change"));
    });
  }

  /** The model chosen for the shown task; null if there is none. */
  get model() {
    return this.modelOf(this.task);
  }

  modelOf(task) {
    const models = this.#models[task];
    return models.find(({ key }) => key === this.#chosen[task]) ?? models.at(-1) ?? null; // the newest version is last
  }

  /** Offers models; the task stays if one does it. @param {Record<string, import("../server/models.js").Model[]>} models */
  offer(models) {
    this.#models = models;
    for (const task of TASKS) $(`tab-${task}`).hidden = models[task].length === 0 && task !== "inpaint";
    const possible = TASKS.filter((task) => models[task].length);
    $("tab-inpaint").hidden = models.inpaint.length === 0 && possible.length > 0;
    $("tabs").hidden = possible.length < 2;
    this.choose(models[this.task].length || !possible.length ? this.task : possible[0]);
  }

  choose(task) {
    this.task = task;
    for (const other of TASKS) {
      $(`panel-${other}`).hidden = other !== task;
      $(`tab-${other}`).setAttribute("aria-selected", String(other === task));
      $(`tab-${other}`).tabIndex = other === task ? 0 : -1;
    }
    const options = this.#models[task].map(({ key, label }) => element("option", { value: key, textContent: label }));
    $("model").replaceChildren(...options);
    if (this.model) $("model").value = this.model.key;
    document.querySelector(".model").classList.toggle("several", options.length > 1);
    this.dispatchEvent(new Event("change"));
  }
}
