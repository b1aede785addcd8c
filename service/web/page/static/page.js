// The page: creates its parts, which know each other only through their arguments.

import { Api } from "./server/api.js";
import { byTask } from "./server/models.js";
import { Saving } from "./photographs/saving.js";
import { Strip } from "./photographs/strip.js";
import { Workspace } from "./photographs/workspace.js";
import { connectOpening } from "./photographs/opening.js";
import { Recovery } from "./recovery/recovery.js";
import { $, focusNear, hide } from "./ui/dom.js";
import { Busy, explained } from "./ui/busy.js";
import { Compare } from "./ui/compare.js";
import { EditMenu, maskName } from "./ui/edit_menu.js";
import { FillControl } from "./ui/fill_control.js";
import { Gallery } from "./ui/gallery.js";
import { Painting } from "./ui/painting.js";
import { Sheets } from "./ui/sheets.js";
import { Tabs } from "./ui/tabs.js";
import { askForKey, connectDialogs } from "./ui/dialogs.js";
import { connectShortcuts } from "./ui/shortcuts.js";
import { connectTheme } from "./ui/theme.js";
import { say } from "./ui/status.js";
import { View } from "./view/view.js";

const MODELS_AGAIN_MS = 2000;

/** Makes and connects the parts; resolves when all is connected and stored work is back. */
export async function startPage() {
  connectTheme();
  say(""); // replaces the message for a script that does not start
  const api = new Api(askForKey);
  const busy = new Busy();
  const workspace = new Workspace();
  const tabs = new Tabs();
  const view = new View($("stage"), { picture: $("layer-picture"), mask: $("layer-mask"), tool: $("surface") });
  const painting = new Painting(view, workspace, () => fills.afterStroke());
  const fills = new FillControl(api, busy, workspace, () => tabs.modelOf("inpaint"));
  const menu = new EditMenu(workspace, busy, painting);
  const compare = new Compare(view);
  const saving = new Saving(workspace);
  new Strip(workspace, fills, busy);
  const edit = (files) => {
    const away = tabs.task !== "inpaint";
    tabs.choose("inpaint");
    if (away) focusNear(); // the button that was pressed is gone
    return workspace.open(files);
  };
  const sheets = new Sheets(api, busy, () => tabs.model, (file) => edit([file]));
  const gallery = new Gallery(api, (file) => edit([file]));

  fills.onOffer = (patch) => view.uncover(patch, $("variants").getBoundingClientRect());
  view.onTransform = () => ($("zoom").textContent = `${Math.round(view.transform.scale * 100)} %`);
  workspace.addEventListener("active", ({ detail: picture }) => {
    view.show(picture);
    const [shown, gone] = picture ? ["surface", "empty"] : ["empty", "surface"];
    hide($(shown), false); // first, as it takes the focus of the other
    hide($(gone));
    if (!picture && view.divider !== null) compare.toggle(); // there is nothing to compare
    if (picture) $("surface").ariaLabel = `Picture ${picture.name}, ${picture.width} by ${picture.height} pixels`;
  });
  workspace.addEventListener("edit", ({ detail }) => detail === workspace.active && view.redraw());
  tabs.addEventListener("change", () => {
    fills.update();
    sheets.showParts();
    if (tabs.task === "results") gallery.reload();
  });
  for (const [id, act] of Object.entries({ "zoom-in": () => view.zoomBy(1.25), "zoom-out": () => view.zoomBy(0.8), fit: () => view.fit() })) {
    $(id).onclick = act;
  }
  connectOpening((files) => {
    return tabs.task === "translate" ? sheets.drop(files[0]) : edit(files);
  });
  connectShortcuts({ view, workspace, painting, fills, menu, compare, saving, busy });
  connectDialogs(() => {
    if (tabs.task !== "inpaint") return sheets.call(tabs.task);
    const name = workspace.active?.name ?? "photo.jpg";
    return { task: "inpaint", files: { image: name, mask: maskName(name) }, fields: fills.choice };
  });
  document.querySelector("fieldset").disabled = false;
  await Promise.all([readModels(api, tabs, gallery, fills), new Recovery(workspace).start()]);
  document.documentElement.dataset.ready = "true"; // for tests
}

/** Reads the models until all that the server loads are there; those that come first are offered first. @param {string} said what was said about it, and is not repeated */
async function readModels(api, tabs, gallery, fills, said = "") {
  const again = (text) => readModels(api, tabs, gallery, fills, text);
  fills.onWaiting = api.onModelGone = () => {};
  try {
    const loading = await api.loading(); // asked before the models, so that none is missing afterwards
    const models = byTask(await api.get("v1/models"));
    tabs.offer(models, loading);
    if ($("tab-results").hidden && (await gallery.offered())) tabs.offerResults();
    const found = Object.values(models).some((list) => list.length);
    if (found && !loading) {
      api.onModelGone = () => again();
      return;
    }
    if (!found && !said) say((said = "No model is ready yet."));
  } catch (error) {
    const text = explained(error);
    if (text !== said) say((said = text), true);
    if (error.status === 401 || error instanceof SyntaxError) {
      fills.onWaiting = () => again(); // no key was given, or another program answers: retry only when a person asks for it
      return;
    }
  }
  setTimeout(again, MODELS_AGAIN_MS, said);
}
