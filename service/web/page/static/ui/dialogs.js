// Dialogs and menus: the key, the request as code, help.

import { currentKey, rememberKey } from "../server/key.js";
import { curl, python } from "../server/snippets.js";
import { $, element } from "./dom.js";
import { say } from "./status.js";

const KEYS = [
  ["B E L R", "brush, eraser, lasso, rectangle"],
  ["[ ]", "smaller and larger brush"],
  ["Shift and click", "a straight line from the last stroke"],
  ["F", "fill; Esc cancels a fill or a stroke"],
  ["Ctrl Z, Ctrl Shift Z", "undo, redo"],
  ["G S I Del", "grow, shrink, invert, clear the mask"],
  ["A", "fill the last mask again, for instance with another model"],
  ["+ − 0 1", "zoom in, zoom out, whole picture, 100 %"],
  ["Space and drag", "pan, also with two fingers or the middle button"],
  ["D, hold C", "before and after; see the original"],
  ["Page Up, Page Down", "previous photograph, next photograph"],
  ["Ctrl O, Ctrl S, Ctrl C", "open, save as PNG, copy"],
  ["Arrows, Enter", "on the picture: move the brush, start or end a stroke"],
  ["Ctrl arrows", "on the picture: pan"],
];

/** Asks for an API key. @param {string} reason of the server against the key before @returns {Promise<boolean>} false if it was not given */
export function askForKey(reason) {
  const dialog = $("key-dialog");
  $("key-reason").textContent = currentKey() ? reason : "Ask whoever runs the server for one.";
  $("key").value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.querySelector("form").onsubmit = (event) => {
      event.preventDefault();
      rememberKey($("key").value.trim());
      dialog.close("given");
    };
    dialog.onclose = () => {
      const given = dialog.returnValue === "given" && currentKey() !== "";
      dialog.returnValue = $("key").value = "";
      resolve(given);
    };
  });
}

/** Connects the dialogs' buttons. @param {() => import("../server/snippets.js").Call} currentCall the request as it would be sent */
export function connectDialogs(currentCall) {
  $("keys").append(...KEYS.flatMap(([key, does]) => [element("dt", {}, element("kbd", { textContent: key })), element("dd", { textContent: does })]));
  $("help").onclick = () => $("help-dialog").showModal();
  $("code").onclick = () => {
    const call = { ...currentCall(), key: currentKey() !== "" };
    $("code-curl").textContent = curl(call, document.baseURI);
    $("code-python").textContent = python(call, document.baseURI);
    $("code-dialog").showModal();
  };
  for (const button of document.querySelectorAll("[data-close]")) {
    button.onclick = () => button.closest("dialog").close();
  }
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.onclick = () => copy($(button.dataset.copy));
  }
  connectMenus();
  if (/mac|iP/i.test(navigator.userAgentData?.platform ?? navigator.platform)) nameCommandKey();
}

/** Names the Command key of Apple's keyboards in place of Ctrl. */
function nameCommandKey() {
  for (const button of document.querySelectorAll("[title*=Ctrl]")) button.title = button.title.replaceAll("Ctrl", "⌘");
  for (const text of document.querySelectorAll("kbd, #surface-help")) {
    text.textContent = text.textContent.replaceAll("Ctrl", "⌘").replace("Control", "Command");
  }
}

async function copy(source) {
  try {
    await navigator.clipboard.writeText(source.textContent);
    say("Copied.");
  } catch {
    getSelection().selectAllChildren(source); // without https the clipboard is closed to pages
    say("The text is selected: copy it.");
  }
}

/** A menu closes after its choice, with Escape, and when something else is pressed. */
function connectMenus() {
  const menus = [...document.querySelectorAll(".menu")];
  const shut = (menu) => menu.removeAttribute("open");
  document.addEventListener("pointerdown", ({ target }) => menus.filter((menu) => !menu.contains(target)).forEach(shut));
  for (const menu of menus) {
    const leave = () => {
      shut(menu);
      menu.querySelector("summary").focus();
    };
    menu.onclick = ({ target }) => target.closest("button") && leave();
    menu.addEventListener("focusout", ({ relatedTarget }) => relatedTarget && !menu.contains(relatedTarget) && shut(menu));
    menu.onkeydown = (event) => {
      if (event.key !== "Escape" || !menu.open) return;
      event.stopPropagation();
      leave();
    };
  }
}
