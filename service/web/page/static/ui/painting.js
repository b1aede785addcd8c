// Painting with every device: the tool in hand, its outline on the stage, and the keyboard's cursor.

import { connectPointers } from "../view/pointer.js";
import { Stroke } from "../view/tools.js";
import { $ } from "./dom.js";
import { prefer, preferences } from "./preferences.js";
import { say } from "./status.js";

const LARGEST_BRUSH = 1000;
const FIRST_BRUSH = 40; // larger in a large picture, smaller in a small one, until a person chooses
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const SPOKEN_AFTER_MS = 700;

export class Painting {
  /** @type {Stroke | null} */
  #stroke = null;
  /** @type {{x: number, y: number} | null} where the pointer is */
  #hover = null;
  /** @type {{x: number, y: number} | null} the keyboard's cursor */
  #cursor = null;
  /** @type {{x: number, y: number} | null} where the last stroke ended */
  #last = null;
  #size = FIRST_BRUSH;
  /** Whether a person chose the size; until then it suits the picture. */
  #chosen = preferences().size > 0;
  #tool = /** @type {import("../view/tools.js").ToolName} */ ("brush");
  #spoken = 0;

  /** @param {import("../view/view.js").View} view @param {import("../photographs/workspace.js").Workspace} workspace @param {() => void} onStroke after each stroke */
  constructor(view, workspace, onStroke) {
    this.view = view;
    this.workspace = workspace;
    this.onStroke = onStroke;
    view.drawTool = (context) => this.#draw(context);
    connectPointers($("stage"), view, {
      begin: (_, { erase, line }) => {
        this.#cursor = null;
        this.#begin(erase);
        if (line && this.#last && this.#sized) this.#stroke.to(this.#last, 1);
      },
      move: (point, pressure) => this.#move(point, pressure),
      end: () => this.#end(),
      abort: () => this.abort(),
      hover: (point) => {
        this.#hover = point;
        view.redrawTool();
      },
    });
    $("surface").onkeydown = (event) => this.#key(event);
    $("surface").onblur = () => {
      clearTimeout(this.#spoken);
      this.lift();
    };
    workspace.addEventListener("active", () => {
      this.lift();
      this.#cursor = this.#last = null; // they may be outside of this picture
      const { width, height } = workspace.active ?? {};
      if (width && !this.#chosen) this.#resize(Math.min(Math.max(FIRST_BRUSH, width / 25, height / 25), width / 3, height / 3));
    });
    for (const button of document.querySelectorAll("[data-tool]")) {
      button.onclick = () => this.choose(button.dataset.tool);
    }
    $("size").oninput = () => this.resize(fromSlider(Number($("size").value)));
    const { tool, size } = preferences();
    this.choose(tool);
    this.#resize(size || FIRST_BRUSH);
  }

  /** Whether the selected tool has a size. */
  get #sized() {
    return this.#tool === "brush" || this.#tool === "eraser";
  }

  /** Selects a tool. */
  choose(tool) {
    this.#tool = tool;
    for (const button of document.querySelectorAll("[data-tool]")) {
      button.ariaPressed = button.dataset.tool === tool;
    }
    prefer({ tool });
    this.view.redrawTool();
  }

  /** Sets the brush's diameter in pixels of the picture, and remembers it. */
  resize(size) {
    this.#chosen = true;
    this.#resize(size);
    prefer({ size: this.#size });
  }

  #resize(size) {
    this.#size = Math.min(LARGEST_BRUSH, Math.max(1, Math.round(size)));
    $("size").value = String(toSlider(this.#size));
    $("size").ariaValueText = `${this.#size} pixels`;
    $("size-shown").textContent = String(this.#size);
    this.view.redrawTool();
  }

  /** Makes the brush a step larger or smaller. @param {1 | -1} direction */
  step(direction) {
    this.resize(this.#size + direction * Math.max(1, Math.round(this.#size * 0.15)));
    say(`${this.#size} pixels.`, false, false);
  }

  /** Lifts the brush, so that nothing is in progress. */
  lift() {
    if (this.#stroke) this.#end();
  }

  #begin(erase) {
    this.lift();
    this.#stroke = new Stroke(this.workspace.active, this.#tool, { size: this.#size, erase });
  }

  #move(point, pressure) {
    const changed = this.#stroke?.to(point, pressure);
    this.#hover = point;
    if (changed) this.view.redrawMask(changed);
    else this.view.redrawTool();
  }

  #end() {
    const stroke = this.#stroke;
    this.#stroke = null;
    this.#last = this.#cursor ?? this.#hover;
    const changed = stroke?.end();
    this.view.redraw();
    if (!changed) return stroke?.value === 0 && say("There is no mask to erase here. Use Undo to remove a fill.");
    this.workspace.edited(stroke.picture);
    if (stroke.value && stroke.picture === this.workspace.active) this.onStroke();
  }

  /** Reverts the stroke in progress; null if there is none. */
  abort() {
    const stroke = this.#stroke;
    stroke?.abort();
    this.#stroke = null;
    this.view.redraw();
    return stroke;
  }

  #key(event) {
    const { active } = this.workspace;
    const arrow = ARROWS[event.key];
    if (!active || (!arrow && event.key !== "Enter")) return;
    event.preventDefault();
    if (arrow && (event.ctrlKey || event.metaKey)) {
      this.view.panBy(-arrow[0] * 60, -arrow[1] * 60);
      return;
    }
    const { width, height } = active;
    this.#cursor ??= this.view.at(middleOf($("stage")));
    if (event.key === "Enter") event.repeat || this.#press();
    else {
      const step = Math.max(1, Math.round(this.#size / 2)) * (event.shiftKey ? 5 : 1);
      const within = (value, limit) => Math.min(limit - 0.5, Math.max(0.5, value));
      this.#cursor = { x: within(this.#cursor.x + arrow[0] * step, width), y: within(this.#cursor.y + arrow[1] * step, height) };
      this.#move(this.#cursor, 1);
      this.view.reveal(this.#cursor);
    }
    clearTimeout(this.#spoken); // what Enter leads to is said instead
    const { x, y } = this.#cursor;
    if (arrow) this.#spoken = setTimeout(() => say(`${Math.round(x)}, ${Math.round(y)}`), SPOKEN_AFTER_MS);
  }

  #press() {
    say(`Stroke ${this.#stroke ? "ended" : "started"}.`, false, false);
    if (this.#stroke) {
      this.#end();
      return;
    }
    this.#begin(false);
    this.#move(this.#cursor, 1);
  }

  #draw(context) {
    if (!this.workspace.active) return;
    const { scale, x, y } = this.view.transform;
    const on = (point) => [point.x * scale + x, point.y * scale + y];
    const outline = this.#stroke?.outline ?? [];
    if (outline.length > 1) {
      context.beginPath();
      outline.forEach((point) => context.lineTo(...on(point)));
      context.closePath();
      twice(context, [6, 4]);
    }
    const at = this.#cursor ?? this.#hover;
    if (!at) return;
    const [cx, cy] = on(at);
    context.beginPath();
    if (this.#sized) context.arc(cx, cy, Math.max(1.5, (this.#size * scale) / 2), 0, 2 * Math.PI);
    if (this.#cursor || !this.#sized || this.#size * scale < 8) {
      for (const [dx, dy] of Object.values(ARROWS)) {
        context.moveTo(cx + dx * 4, cy + dy * 4);
        context.lineTo(cx + dx * 10, cy + dy * 10);
      }
    }
    twice(context, []);
  }
}

/** A line that is seen on dark and on light. */
function twice(context, dash) {
  for (const [style, width] of [["#000a", 3], ["#fff", 1.25]]) {
    context.setLineDash(width > 2 ? [] : dash);
    context.strokeStyle = style;
    context.lineWidth = width;
    context.stroke();
  }
}

function middleOf(stage) {
  const { left, top, width, height } = stage.getBoundingClientRect();
  return { clientX: left + width / 2, clientY: top + height / 2 };
}

/** The slider is logarithmic: one pixel matters for thin brushes. */
function fromSlider(value) {
  return LARGEST_BRUSH ** (value / 100);
}

function toSlider(size) {
  return (100 * Math.log(size)) / Math.log(LARGEST_BRUSH);
}
