// Keyboard shortcuts, which work everywhere except in input fields.

import { $, focusNear, typing } from "./dom.js";
import { say } from "./status.js";

/** The Latin letter of a key; on other layouts, such as Greek or Hebrew, the letter at the same position. @param {KeyboardEvent} event */
const letterOf = ({ key, code }) => (key > "\u024f" ? code.replace("Key", "") : key).toLowerCase();

/**
 * Connects the keys.
 * @param {{view: import("../view/view.js").View, workspace: import("../photographs/workspace.js").Workspace, painting: import("./painting.js").Painting,
 *   fills: import("./fill_control.js").FillControl, menu: import("./edit_menu.js").EditMenu, compare: import("./compare.js").Compare,
 *   saving: import("../photographs/saving.js").Saving, busy: import("./busy.js").Busy}} parts
 */
export function connectShortcuts({ view, workspace, painting, fills, menu, compare, saving, busy }) {
  const tool = (name) => () => {
    painting.choose(name);
    say(`Tool: ${name}.`, false, false);
  };
  const plain = {
    b: tool("brush"),
    e: tool("eraser"),
    l: tool("lasso"),
    r: tool("rectangle"),
    "[": () => painting.step(-1),
    "]": () => painting.step(1),
    bracketleft: () => painting.step(-1),
    bracketright: () => painting.step(1),
    f: () => {
      painting.lift();
      fills.fill();
    },
    g: () => menu.run("grow"),
    s: () => menu.run("shrink"),
    i: () => menu.run("invert"),
    a: () => menu.run("again"),
    delete: () => menu.run("clear"),
    backspace: () => menu.run("clear"),
    "+": () => view.zoomBy(1.25),
    "=": () => view.zoomBy(1.25),
    "-": () => view.zoomBy(0.8),
    0: () => view.fit(),
    1: () => view.zoomTo(1),
    c: () => compare.showOriginal(true),
    d: () => compare.toggle(),
    pageup: () => workspace.step(-1),
    pagedown: () => workspace.step(1),
    escape: () => (painting.abort() ? say("Stroke cancelled.", false, false) : busy.cancel()),
    "?": () => $("help-dialog").showModal(),
  };
  const withControl = {
    z: () => menu.undo(),
    y: () => menu.redo(),
    o: () => {
      if (document.activeElement === document.body) focusNear(); // so that the opened picture is in hand
      $("pick-pictures").click();
    },
    s: () => saving.save("png"),
    c: () => saving.save("copy"),
  };
  const withShift = { z: () => menu.redo() }; // the others are the browser's
  addEventListener("keydown", (event) => {
    const key = letterOf(event);
    // on a Mac, brackets may be typed with the Alt key; with letters it is the browser's
    if (typing(event) || (event.altKey && /\w/.test(key)) || $("panel-inpaint").hidden) return;
    const control = event.ctrlKey || event.metaKey;
    const act = (!control ? plain : event.shiftKey ? withShift : withControl)[key];
    if (!act || (control && key === "c" && String(getSelection()))) return;
    event.preventDefault();
    act();
  });
  for (const id of ["model", "samples"]) returnKeys($(id));
  // the key may be let go in another window
  for (const type of ["keyup", "blur"]) addEventListener(type, () => compare.showOriginal(false));
}

/** Moves the focus back to the picture after a choice by mouse or finger: a list takes letters as the names of its entries. */
function returnKeys(list) {
  let pointed = false;
  for (const type of ["pointerdown", "keydown"]) list.addEventListener(type, () => (pointed = type === "pointerdown"));
  list.addEventListener("change", () => pointed && !$("panel-inpaint").hidden && focusNear());
}
