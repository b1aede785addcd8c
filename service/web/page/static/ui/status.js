// The status line, which screen readers read out.

import { $ } from "./dom.js";

const SHOWN_MS = 6000;
const MOST_NAMED = 6;
let timer = 0;

/** Shows a message; one that ends in … stays until the next message. @param {string} text @param {boolean} wrong whether it is an error @param {boolean} shown false: only read out */
export function say(text, wrong = false, shown = true) {
  const line = $("status");
  // elements outside an open dialog are neither visible nor read out
  const place = document.querySelector("dialog[open]") ?? $("messages");
  if (line.parentNode !== place) place.append(line);
  line.textContent = text;
  line.classList.toggle("wrong", wrong);
  line.classList.toggle("unseen", !shown);
  clearTimeout(timer);
  if (!text.endsWith("…")) timer = setTimeout(() => (line.textContent = ""), wrong ? 2 * SHOWN_MS : SHOWN_MS);
}

/** Names as text: "a, b and c"; of many, the first ones and the number of the others. @param {string[]} names */
export function listed(names) {
  const shown = names.length > MOST_NAMED ? [...names.slice(0, MOST_NAMED - 1), `${names.length - MOST_NAMED + 1} more`] : names;
  return new Intl.ListFormat("en-GB").format(shown);
}

/** What failed, with the names that have a reason in common in one sentence. @param {{name: string, reason: string}[]} failures */
export function grouped(failures) {
  return [...new Set(failures.map(({ reason }) => reason))]
    .map((reason) => listed(failures.filter((one) => one.reason === reason).map(({ name }) => name)) + reason)
    .join(" ");
}
