// The page: its parts are made here and know each other only through what they are given.

import { Recovery } from "./recovery/recovery.js";
import { Api } from "./server/api.js";
import { byTask } from "./server/models.js";
import { Busy, explained } from "./ui/busy.js";
import { Compare } from "./ui/compare.js";
import { askForKey, connectDialogs } from "./ui/dialogs.js";
import { $ } from "./ui/dom.js";
import { EditMenu } from "./ui/edit_menu.js";
import { FillControl } from "./ui/fill_control.js";
import { connectOpening } from "./photographs/opening.js";
import { Painting } from "./ui/painting.js";
import { Saving } from "./photographs/saving.js";
import { Sheets } from "./ui/sheets.js";
import { connectShortcuts } from "./ui/shortcuts.js";
import { say } from "./ui/status.js";
import { Strip } from "./photographs/strip.js";
import { Tabs } from "./ui/tabs.js";
import { connectTheme } from "./ui/theme.js";
import { Workspace } from "./photographs/workspace.js";
import { View } from "./view/view.js";

const MODELS_AGAIN_MS = 3000;

/** Makes and connects the parts; resolves when all is connected and stored work is back. */
export async function startPage() {
  connectTheme();
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
  const sheets = new Sheets(api, busy, () => tabs.model, (file) => {
    tabs.choose("inpaint");
    workspace.open([file]);
  });

  view.onTransform = () => ($("zoom").textContent = `${Math.round(view.transform.scale * 100)} %`);
  workspace.addEventListener("active", ({ detail: picture }) => {
    view.show(picture);
    $("empty").hidden = picture !== null;
    $("surface").setAttribute("aria-label", picture ? `Picture ${picture.name}, ${picture.width} by ${picture.height} pixels` : "Picture");
  });
  workspace.addEventListener("edit", ({ detail }) => detail === workspace.active && view.redraw());
  tabs.addEventListener("change", () => {
    fills.update();
    sheets.showParts();
  });
  for (const [id, act] of Object.entries({ "zoom-in": () => view.zoomBy(1.25), "zoom-out": () => view.zoomBy(0.8), fit: () => view.fit() })) {
    $(id).addEventListener("click", act);
  }
  connectOpening((files) => {
    if (tabs.task === "translate") return sheets.drop(files[0]);
    tabs.choose("inpaint");
    return workspace.open(files);
  });
  connectShortcuts({ view, workspace, painting, fills, menu, compare, saving, busy });
  connectDialogs(() => {
    if (tabs.task !== "inpaint") return sheets.call(tabs.task);
    const name = workspace.active?.name ?? "photo.jpg";
    return { task: "inpaint", files: { image: name, mask: "mask.png" }, fields: fills.choice };
  });
  await Promise.all([readModels(api, tabs), new Recovery(workspace).start()]);
  document.documentElement.dataset.ready = "true"; // for tests
}

/** Reads the models until there is one; a server that starts has none yet. */
async function readModels(api, tabs) {
  try {
    const models = byTask(await api.get("v1/models"));
    tabs.offer(models);
    if (Object.values(models).some((list) => list.length)) return;
    say("No model is ready yet.");
  } catch (error) {
    say(explained(error), true);
    if (error.status === 401) return; // no key was given; the next call asks again
  }
  setTimeout(() => readModels(api, tabs), MODELS_AGAIN_MS);
}
