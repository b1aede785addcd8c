// Mouse, pen and fingers on the stage: one finger paints, two pan and zoom; the right button and a pen's other end erase.

const PINCH = "pinch";
/** Bit of `buttons`. */
const RIGHT = 2;
const MIDDLE = 4;
const PEN_ERASER = 32;
const ZOOM_PER_WHEEL_PIXEL = 0.002;
const ZOOM_PER_PINCH_PIXEL = 0.01;

/**
 * @typedef {object} Hands callbacks for the actions of pointers
 * @property {(point: {x: number, y: number}, options: {erase: boolean, line: boolean}) => void} begin
 * @property {(point: {x: number, y: number}, pressure: number) => void} move
 * @property {() => void} end
 * @property {() => void} abort
 * @property {(point: {x: number, y: number} | null) => void} hover
 */

/** Connects the stage's pointers. @param {HTMLElement} stage @param {import("./view.js").View} view @param {Hands} hands */
export function connectPointers(stage, view, hands) {
  /** @type {Map<number, {clientX: number, clientY: number}>} */
  const fingers = new Map();
  let mode = /** @type {"paint" | "pan" | "pinch" | null} */ (null);
  let spacePressed = false;
  let last = null;

  stage.addEventListener("pointerdown", (event) => {
    if (!view.picture || event.target.closest("[data-no-paint]")) return;
    stage.querySelector("[tabindex]")?.focus({ preventScroll: true, focusVisible: false });
    event.preventDefault();
    if (event.pointerType === "touch") {
      if (mode && last.pointerType !== "touch") return; // the palm of the hand that holds the pen
      fingers.set(event.pointerId, event);
    }
    if (fingers.size > 1) {
      if (mode === "paint") hands.abort();
      mode = PINCH;
      return;
    }
    if (mode) return;
    stage.setPointerCapture(event.pointerId);
    last = event;
    mode = event.buttons & MIDDLE || spacePressed ? "pan" : "paint";
    if (mode === "paint") {
      hands.begin(view.at(event), { erase: (event.buttons & (RIGHT | PEN_ERASER)) !== 0, line: event.shiftKey });
      hands.move(view.at(event), pressureOf(event));
    }
  });

  stage.addEventListener("pointermove", (event) => {
    if (mode === PINCH && fingers.has(event.pointerId)) {
      if (fingers.size > 1) pinch(view, fingers, event); // the last finger on the stage moves nothing
      fingers.set(event.pointerId, event);
    } else if (mode === "pan" && event.pointerId === last.pointerId) {
      view.panBy(event.clientX - last.clientX, event.clientY - last.clientY);
      last = event;
    } else if (mode === "paint" && event.pointerId === last.pointerId) {
      const steps = event.getCoalescedEvents?.() ?? [];
      for (const step of steps.length ? steps : [event]) hands.move(view.at(step), pressureOf(step));
    }
    if (event.pointerType !== "touch") hands.hover(view.at(event));
  });

  const up = (event) => {
    fingers.delete(event.pointerId);
    if (mode === PINCH) {
      if (fingers.size === 0) mode = null;
      return;
    }
    if (event.pointerId !== last?.pointerId || !mode) return;
    if (mode === "paint") event.type === "pointerup" ? hands.end() : hands.abort();
    mode = null;
  };
  stage.addEventListener("pointerup", up);
  stage.addEventListener("pointercancel", up);
  stage.addEventListener("pointerleave", () => hands.hover(null));
  stage.addEventListener("contextmenu", (event) => event.preventDefault());
  stage.addEventListener("wheel", (event) => wheel(view, event), { passive: false });
  // space and drag pans, as in other editors, also after a button was pressed with the mouse; it presses the button
  // that the Tab key went to; the keyboard's own painting uses Enter
  let pointed = false;
  addEventListener("pointerdown", () => (pointed = true), true);
  addEventListener("keydown", ({ key }) => key === "Tab" && (pointed = false));
  const space = (pressed) => (event) => {
    const panning = pointed && stage.matches(":hover");
    if (event.code !== "Space" || event.target.closest(panning ? "dialog" : "button, input, select, summary, dialog")) return;
    event.preventDefault();
    spacePressed = pressed;
    stage.classList.toggle("panning", pressed);
  };
  addEventListener("keydown", space(true));
  addEventListener("keyup", space(false));
  addEventListener("blur", () => {
    spacePressed = false;
    stage.classList.remove("panning");
  });
}

/** Pressure of a pen; a mouse and a finger have none and paint with the whole brush. */
function pressureOf(event) {
  return event.pointerType === "pen" && event.pressure > 0 ? event.pressure : 1;
}

function pinch(view, fingers, moved) {
  const before = [...fingers.values()].slice(0, 2);
  const after = before.map((finger) => (finger.pointerId === moved.pointerId ? moved : finger));
  const middle = ([a, b]) => ({ clientX: (a.clientX + b.clientX) / 2, clientY: (a.clientY + b.clientY) / 2 });
  const spread = ([a, b]) => Math.max(1, Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY));
  view.panBy(middle(after).clientX - middle(before).clientX, middle(after).clientY - middle(before).clientY);
  view.zoomBy(spread(after) / spread(before), view.onStage(middle(after)));
}

/** A mouse's wheel zooms; a touchpad's two fingers pan, and pinched they zoom (the browser sends that with ctrlKey). */
function wheel(view, event) {
  if (!view.picture || event.target.closest("[data-no-paint]")) return;
  event.preventDefault();
  const touchpad = event.deltaMode === 0 && (event.deltaX !== 0 || Math.abs(event.deltaY) < 40);
  if (event.ctrlKey) {
    const factor = Math.abs(event.deltaY) < 40 ? ZOOM_PER_PINCH_PIXEL : ZOOM_PER_WHEEL_PIXEL;
    view.zoomBy(Math.exp(-event.deltaY * factor), view.onStage(event));
  } else if (event.shiftKey || touchpad) {
    view.panBy(event.shiftKey && !event.deltaX ? -event.deltaY : -event.deltaX, event.shiftKey && !event.deltaX ? 0 : -event.deltaY);
  } else {
    const pixels = event.deltaMode === 1 ? event.deltaY * 33 : event.deltaY;
    view.zoomBy(Math.exp(-pixels * ZOOM_PER_WHEEL_PIXEL), view.onStage(event));
  }
}
