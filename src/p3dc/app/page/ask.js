/** Part 2: photos to be labelled, and their labels. */

import { openCamera } from "./camera.js";
import { button, count, find, h, icon, keyed, percent, percentInWords, set } from "./dom.js";
import { draggable, droppable } from "./drop.js";
import { saveAs } from "./files.js";
import { deletePhoto, offerUndo, openMenu, placesFor } from "./menus.js";
import { announce } from "./notices.js";
import * as service from "./service.js";
import { act, colourNamed, photosOf, shownView, state } from "./store.js";
import { onTheirWay, placeholders, upload } from "./uploads.js";
import { openWhy } from "./why.js";

function makeResult({ id }) {
  let photo;
  const image = h("img", { src: service.thumbnail(id), alt: "", loading: "lazy", draggable: "false" });
  const label = h("strong", { "data-test": "label" });
  const probability = h("span", { class: "probability", "data-test": "probability" });
  const fill = h("span", { class: "fill" });
  const bar = h("span", { class: "bar-track", "aria-hidden": "true" }, fill);
  const runnerUp = h("span", { class: "runner-up", "data-test": "runner-up" });
  const name = h("span", { class: "file" });
  const line = (...parts) => h("span", { class: "verdict-line" }, ...parts);
  const verdict = h("span", { class: "verdict" }, line(label, probability), bar, line(runnerUp, name));
  const open = button("result-open", "why", () => openWhy(id), image, verdict);
  const sayWhat = () => openMenu(correct, "This is …", ["This is …", ...placesFor(photo)]);
  const correct = button("button small", "correct", sayWhat, "This is …");
  set(correct, { "aria-haspopup": "menu", title: "Say what it is, and it is taught" });
  const remove = button("tool", "delete-photo", () => deletePhoto(photo), icon("close"));
  const tools = h("span", { class: "result-tools" }, remove, correct);
  const node = h("li", { class: "card result", "data-test": "result", "data-photo": id }, open, tools);
  draggable(node, id);
  node.addEventListener("keydown", ({ key }) => {
    if (key === "Delete") deletePhoto(photo);
  });

  const update = (latest) => {
    photo = latest;
    const found = shownView()?.labels.find((one) => one.id === id);
    node.className = `card result ${found ? (found.unknown ? "c-none" : colourNamed(found.label)) : "waiting c-none"}`;
    node.dataset.unknown = Boolean(found?.unknown);
    label.textContent = found?.label ?? (state.view?.ready === false ? "No label yet" : "Looking …");
    probability.textContent = found && !found.unknown ? percent(found.probability) : "";
    fill.style.width = found && !found.unknown ? `${100 * found.probability}%` : "0";
    runnerUp.textContent = found ? afterThat(found) : "";
    name.textContent = photo.name;
    open.setAttribute("aria-label", `${photo.name}: ${found ? inWords(found) : "no label yet"}. Why?`);
    correct.hidden = !state.project.classes.length;
    correct.setAttribute("aria-label", `Say what ${photo.name} is`);
    remove.setAttribute("aria-label", `Delete ${photo.name}`);
  };
  return { node, update };
}

function afterThat({ unknown, runner_up: name, runner_up_probability: share }) {
  if (!name) return "";
  return unknown ? `likeliest ${name}, ${percent(share)}` : `then ${name}, ${percent(share)}`;
}

function inWords(found) {
  const verdict = found.unknown ? "unknown" : `${found.label}, ${percentInWords(found.probability)}`;
  return `${verdict}, ${afterThat(found)}`;
}

const makePlaceholder = () => ({
  node: h("li", { class: "card result coming", "aria-hidden": "true" },
    h("span", { class: "tile coming" }), h("span", { class: "coming-lines" })),
  update: () => {},
});

export function showResults() {
  const photos = photosOf(null).reverse();
  const coming = onTheirWay(null);
  find("hint").hidden = !state.view?.hint;
  find("hint").textContent = state.view?.hint ?? "";
  find("results-head").hidden = !photos.length && !coming;
  find("results-title").textContent = coming ? `${coming} on the way` : count(photos.length, "photo");
  find("export-csv").disabled = !state.view?.ready;
  const make = (photo) => (photo.coming ? makePlaceholder() : makeResult(photo));
  keyed(find("results"), [...placeholders(coming), ...photos], make);
  announceNew();
}

let known = null;

/** Announce the labels of photos that had none before. */
function announceNew() {
  if (!state.view) return;
  const fresh = known && state.view.labels.filter(({ id }) => !known.has(id));
  known = new Set(state.view.labels.map(({ id }) => id));
  if (!fresh?.length) return;
  const names = new Map(state.project.photos.map(({ id, name }) => [id, name]));
  const first = fresh.slice(0, 3).map((found) => `${names.get(found.id)}: ${inWords(found)}`);
  announce(`${count(fresh.length, "new label")}. ${first.join(". ")}`);
}

export function listenInAsk() {
  droppable(find("ask"), null);
  find("ask-input").addEventListener("change", ({ target }) => {
    upload(null, [...target.files]);
    target.value = "";
  });
  find("ask-camera").addEventListener("click", () => openCamera(null));
  find("export-csv").addEventListener("click", () => saveAs("p3dc-labels.csv", service.getLabels));
  find("clear").addEventListener("click", async () => {
    const n = photosOf(null).length;
    if (await act(service.clearPhotos)) offerUndo(`${count(n, "photo")} cleared.`);
  });
}
