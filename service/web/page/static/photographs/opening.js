// Opening of files: chosen, dropped or pasted.

import { $ } from "../ui/dom.js";
import { say } from "../ui/status.js";

/** Connects the ways to open files. @param {(files: File[]) => void} open */
export function connectOpening(open) {
  const pick = $("pick-pictures");
  for (const id of ["open", "open-first"]) $(id).onclick = () => pick.click();
  pick.onchange = () => {
    const files = [...pick.files];
    pick.value = ""; // so that the same file can be chosen again
    if (files.length) open(files);
  };
  addEventListener("paste", ({ clipboardData }) => openFrom(clipboardData, open));
  addEventListener("dragover", (event) => {
    event.preventDefault();
    $("stage").classList.add("dropping");
  });
  addEventListener("dragleave", (event) => event.relatedTarget || $("stage").classList.remove("dropping"));
  addEventListener("drop", (event) => {
    if (event.target.type === "file") return; // a field takes it itself
    event.preventDefault();
    $("stage").classList.remove("dropping");
    if (!openFrom(event.dataTransfer, open)) say("That is a link, not a file: save the picture first, then open it.", true);
  });
}

/** Opens what was dropped or pasted, but not behind a dialog; false if no file is among it. */
function openFrom({ files }, open) {
  if (files.length && !document.querySelector("dialog[open]")) open([...files]);
  return files.length > 0;
}
