// The page's elements. Names and messages from outside go into them as text only.

/** The element with an id. @returns {any} */
export function $(id) {
  return document.getElementById(id);
}

/** A new element with properties and children. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Hides an element or shows it; the focus in it does not go to the top of the page. */
export function hide(element, hidden = true) {
  const focused = hidden && element.contains(document.activeElement);
  element.hidden = hidden;
  if (focused) focusNear();
}

/** Moves the focus to the main thing that is shown: the picture, the button that opens or sends one, or else the tab. */
export function focusNear() {
  for (const near of document.querySelectorAll("[aria-selected=true], #surface, #open-first, .sheet .main")) near.focus(); // no effect on what is hidden
}

/** Shows whether a button has nothing to do; it keeps the keyboard's focus, which `disabled` would take away. */
export function disable(button, nothing) {
  button.ariaDisabled = String(nothing);
}

/** A picture with its caption and buttons; they paint only where a model fills. */
export function figure(image, caption, paint, ...buttons) {
  paint.hidden = $("tab-inpaint").hidden;
  return element("figure", {}, image, element("figcaption", {}, paint, ...buttons, caption));
}

/** A symbol of the page as an icon. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

/** A small canvas with a picture on it. @param {CanvasImageSource} source */
export function thumbnail(source, width, height, side) {
  const ratio = window.devicePixelRatio || 1;
  const scale = (side * ratio) / height;
  const canvas = element("canvas", { width: Math.max(1, Math.min(4 * side * ratio, width * scale)), height: side * ratio });
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(source, 0, 0, canvas.width, canvas.height);
  return canvas;
}

/** Whether a key press goes into a field and is no shortcut. @param {KeyboardEvent} event */
export function typing(event) {
  const list = event.ctrlKey || event.metaKey ? "" : "select,"; // which takes only letters and arrows
  return event.target.closest(`${list}input:not([type=range], [type=checkbox]), dialog`) !== null;
}
