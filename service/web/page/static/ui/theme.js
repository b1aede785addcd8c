// Dark and light: the system's choice, until the switch is used.

import { $ } from "./dom.js";
import { prefer, preferences } from "./preferences.js";

export function connectTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const show = () => {
    const { theme } = preferences();
    if (theme) document.documentElement.dataset.theme = theme;
    $("theme").ariaPressed = theme ? theme === "dark" : system.matches;
  };
  $("theme").onclick = () => {
    prefer({ theme: $("theme").getAttribute("aria-pressed") === "true" ? "light" : "dark" });
    show();
  };
  system.addEventListener("change", show);
  show();
}
