// Before and after: a divider that is dragged, and a button that shows the original while it is held.

import { $, hide } from "./dom.js";

export class Compare {
  /** @param {import("../view/view.js").View} view */
  constructor(view) {
    this.view = view;
    const divider = $("divider");
    $("compare").onclick = () => this.toggle();
    divider.onpointerdown = (event) => {
      divider.setPointerCapture(event.pointerId);
      event.stopPropagation();
    };
    divider.onpointermove = (event) => {
      if (divider.hasPointerCapture(event.pointerId)) this.#put(view.onStage(event).x / view.size.width);
    };
    divider.onkeydown = (event) => {
      const step = { ArrowLeft: -0.02, ArrowRight: 0.02, PageDown: -0.1, PageUp: 0.1, Home: -1, End: 1 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      this.#put(view.divider + step);
    };
    for (const [type, pressed] of Object.entries({ pointerdown: true, pointerup: false, pointerleave: false, pointercancel: false, blur: false })) {
      $("peek").addEventListener(type, () => this.showOriginal(pressed));
    }
    $("peek").addEventListener("keydown", ({ key }) => (key === "Enter" || key === " ") && this.showOriginal(true)); // until a key is let go
  }

  /** Shows or hides the divider. */
  toggle() {
    const shown = this.view.divider === null;
    hide($("divider"), !shown);
    $("compare").ariaPressed = shown;
    if (shown) this.#put(0.5);
    else {
      this.view.divider = null;
      this.view.redrawPicture();
    }
  }

  /** Shows the original alone, without mask and fills, or the edited picture. */
  showOriginal(shown) {
    if (this.view.original === shown) return;
    this.view.original = shown;
    this.view.redraw();
  }

  #put(share) {
    this.view.divider = Math.min(1, Math.max(0, share));
    const percent = Math.round(this.view.divider * 100);
    $("divider").style.left = `${this.view.divider * 100}%`;
    $("divider").ariaValueNow = percent;
    $("divider").ariaValueText = `original left of ${percent} %`;
    this.view.redrawPicture();
  }
}
