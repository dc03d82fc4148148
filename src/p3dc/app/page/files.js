/** Saving to and opening from the user's disk. */

import { count, find, h } from "./dom.js";
import { openMenu } from "./menus.js";
import { showNotice } from "./notices.js";
import { ask } from "./question.js";
import { archive, getLabels, getModel, keepOriginals, putModel } from "./service.js";
import { act, report, state } from "./store.js";

/** Save what `get` brings under a name. */
export async function saveAs(name, get) {
  try {
    const address = URL.createObjectURL(await get());
    h("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  } catch (error) {
    report(error);
  }
}

export const saveLabels = () => saveAs("p3dc-labels.csv", getLabels);
export const saveModel = () => saveAs("p3dc-model.safetensors", getModel);

/** Save the photos in class folders, if they are kept; otherwise offer to keep those to come. */
async function savePhotos() {
  const { originals, photos, kept_in: folder } = state.project;
  if (originals.photos) {
    h("a", { href: archive, download: "p3dc-photos.zip" }).click();
    const left = photos.length - originals.photos;
    if (left) showNotice(`${count(left, "photo")} left out: added before originals were kept.`);
    return;
  }
  const place = folder ? `in ${folder}` : "in the memory of the service";
  const keep = await ask("The photos themselves are not kept", [
    "This project holds a small picture of each photo. To save photos in class folders it must hold the originals too.",
    `They would be kept ${place}, for photos that you add from now on. Add photos again to have them saved.`,
  ], [{ text: "Keep originals from now on", value: true }, { text: "Not now", value: false }]);
  if (keep) await act(() => keepOriginals(true));
}

function openSaveMenu() {
  const ready = state.view?.ready;
  const { keep } = state.project.originals;
  openMenu(find("save"), "Save", [
    ...(ready ? [{ text: "Labels as CSV", icon: "save", test: "save-labels", run: saveLabels }] : []),
    { text: "Photos in class folders (zip)", icon: "open", test: "save-photos", run: savePhotos },
    ...(ready ? [{ text: "Model", icon: "teach", test: "save-model", run: saveModel }] : []),
    "Original photos",
    keep
      ? { text: "Stop keeping them", icon: "trash", test: "drop-originals", run: () => changeOriginals(false) }
      : { text: "Keep them in the project from now on", icon: "check", test: "keep-originals", run: () => changeOriginals(true) },
  ]);
}

/** What can be saved, and whether originals are kept. */
export function showFiles() {
  const { photos, originals } = state.project;
  find("save").disabled = !photos.length;
  for (const box of document.querySelectorAll("[data-originals]")) box.checked = originals.keep;
}

/** Keep originals or not. Those that are no longer to be kept are deleted at once: ask first. */
async function changeOriginals(keep) {
  const n = keep ? 0 : state.project.originals.photos;
  const title = `Delete the originals of ${count(n, "photo")}?`;
  const words = ["The project keeps its small pictures and all labels. This cannot be undone."];
  const answers = [{ text: "Delete them", value: true }, { text: "Keep them", value: false }];
  if (!n || (await ask(title, words, answers))) await act(() => keepOriginals(keep));
  showFiles();
}

export function listenForFiles() {
  find("save").addEventListener("click", openSaveMenu);
  for (const box of document.querySelectorAll("[data-originals]")) {
    box.addEventListener("change", () => changeOriginals(box.checked));
  }
  find("load-model").addEventListener("change", async ({ target }) => {
    const [file] = target.files;
    if (file && (await act(() => putModel(file)))) showNotice(`${file.name} is open.`);
    target.value = "";
  });
}
