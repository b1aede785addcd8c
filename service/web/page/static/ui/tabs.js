// The tasks as tabs, and the model chosen for each. A task that no model does is not shown.

import { $, element } from "./dom.js";
import { prefer, preferences } from "./preferences.js";
import { say } from "./status.js";

const TASKS = ["inpaint", "translate", "generate", "results"];

/** Event: `change` when another task or model is chosen. */
export class Tabs extends EventTarget {
  task = "inpaint";
  /** @type {Record<string, import("../server/models.js").Model[]>} */
  #models = { inpaint: [], translate: [], generate: [], results: [] };
  /** @type {Record<string, string>} key of the chosen model by task */
  #chosen = preferences().models;
  #offered = "";

  constructor() {
    super();
    for (const task of TASKS) {
      $(`tab-${task}`).onclick = () => {
        say(""); // it was about the task before
        this.choose(task);
      };
    }
    $("tabs").onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const shown = TASKS.filter((task) => !$(`tab-${task}`).hidden);
      const next = step && shown[(shown.indexOf(this.task) + step + shown.length) % shown.length];
      if (!next) return;
      this.choose(next);
      $(`tab-${next}`).focus();
    };
    $("model").onchange = () => {
      this.#chosen[this.task] = $("model").value;
      prefer({ models: this.#chosen });
      this.dispatchEvent(new Event("change"));
    };
  }

  /** The model chosen for the shown task; null if there is none. */
  get model() {
    return this.modelOf(this.task);
  }

  modelOf(task) {
    const models = this.#models[task];
    return models.find(({ key }) => key === this.#chosen[task]) ?? models.find(({ first }) => first) ?? models.at(-1) ?? null;
  }

  /**
   * Offers models; the task stays if one does it, or if its model may still come.
   * @param {Record<string, import("../server/models.js").Model[]>} models @param {boolean} loading whether more may come
   */
  offer(models, loading) {
    const offered = JSON.stringify([models, loading]);
    if (offered === this.#offered) return; // leave the shown choice unchanged
    this.#offered = offered;
    Object.assign(this.#models, models);
    const tasks = Object.keys(models);
    const possible = tasks.filter((task) => models[task].length || (loading && task === "inpaint"));
    if (!possible.length) possible.push("inpaint");
    for (const task of tasks) $(`tab-${task}`).hidden = !possible.includes(task);
    $("tabs").hidden = possible.length < 2 && $("tab-results").hidden;
    this.choose(this.task === "results" || possible.includes(this.task) ? this.task : possible[0]);
  }

  /** Offers the results that the server keeps. */
  offerResults() {
    $("tab-results").hidden = $("tabs").hidden = false;
  }

  choose(task) {
    this.task = task;
    for (const other of TASKS) {
      $(`panel-${other}`).hidden = other !== task;
      $(`tab-${other}`).ariaSelected = other === task;
      $(`tab-${other}`).tabIndex = other === task ? 0 : -1;
    }
    const options = this.#models[task].map(({ key, label }) => element("option", { value: key, textContent: label }));
    $("model").replaceChildren(...options);
    if (this.model) $("model").value = this.model.key;
    const choice = document.querySelector(".model");
    choice.hidden = !options.length;
    choice.classList.toggle("several", options.length > 1);
    $("code").hidden = task === "results";
    this.dispatchEvent(new Event("change"));
  }
}
