/** Part 2: photos to be labelled, and the grid of their labels. */

import { openCamera } from "./camera.js";
import { choiceButton, openChoice } from "./choose.js";
import { button, count, find, h, icon, keyed, set } from "./dom.js";
import { droppable } from "./drop.js";
import { photoOf, photosOf } from "./lookup.js";
import { acceptPhotos, deletePhotos, offerUndo } from "./moves.js";
import { announce } from "./notices.js";
import { pictureOf } from "./pictures.js";
import { inWords, makeResult } from "./results.js";
import { focusCurrent, keepingFocus, listenInGrid, selectAll, selection, selectNone, takeList } from "./selection.js";
import * as service from "./service.js";
import { asked, choice, FILTERS, listed, SORTS } from "./sorting.js";
import { act, state } from "./store.js";
import { placeholders, upload } from "./uploads.js";

const makePlaceholder = ({ coming: { name, file } }) => ({
  node: h("div", { class: "card result coming", role: "row", title: name },
    h("div", { class: "shot", role: "gridcell" }, pictureOf(file)),
    h("div", { class: "verdict", role: "gridcell" }, h("strong", {}, "On its way …"), h("span", { class: "unseen" }, name))),
  update: () => {},
});

export function showResults() {
  const photos = asked();
  const coming = placeholders(null);
  const shown = listed(photos);
  const there = photos.length + coming.length > 0;
  find("hint").hidden = !state.view?.hint;
  find("hint").textContent = state.view?.hint ?? "";
  find("asking").classList.toggle("compact", there);
  find("results-head").hidden = !there;
  find("results-title").textContent = titleOf(photos.length, shown.length);
  find("clear").disabled = !photosOf(null).length;
  showFilters();

  takeList(shown.map(({ id }) => id));
  const make = (photo) => (photo.coming ? makePlaceholder(photo) : makeResult(photo));
  keepingFocus(() => keyed(find("results"), [...shown, ...coming], make));
  find("results-none").hidden = !photos.length || find("results").childElementCount > 0;
  showSelection();
  announceNew();
}

function titleOf(all, shown) {
  if (!all) return "On their way";
  return shown === all ? count(all, "photo") : `${shown.toLocaleString("en")} of ${count(all, "photo")}`;
}

let filtersDrawn = "";

/** The filters: each class is one, after those that are always there. */
function showFilters() {
  const options = [
    ...Object.entries(FILTERS),
    ...state.project.classes.map(({ id, name }) => [id, name]),
  ];
  const drawn = JSON.stringify(options);
  if (drawn === filtersDrawn) return;
  filtersDrawn = drawn;
  if (!options.some(([value]) => value === choice.filter)) choice.filter = "waiting";
  find("filter").replaceChildren(...options.map(([value, text]) => h("option", { value }, text)));
  find("filter").value = choice.filter;
}

const bulk = {
  words: h("strong", { id: "selected", "data-test": "selected" }),
  accept: button("button small primary", "accept-selected", () => acceptPhotos(selection()), icon("check"), "Accept"),
  choose: choiceButton("button small", "choose-selected", () => openChoice(bulk.choose, selection())),
  remove: button("button small danger", "delete-selected", () => deletePhotos(selection()), icon("trash"), "Delete"),
  all: button("button small", "select-all", () => selectAll(), "Select all"),
  none: button("tool", "select-none", () => selectNone(), icon("close")),
};

function showSelection() {
  const n = selection().length;
  const leaving = n === 0 && find("results-bulk").contains(document.activeElement);
  find("results-bulk").hidden = n === 0;
  find("results-tools").hidden = n > 0;
  find("results-title").classList.toggle("unseen", n > 0);
  bulk.words.textContent = `${n.toLocaleString("en")} selected`;
  if (leaving) focusCurrent(); // or keys would go nowhere
}

let known = null;

/** Announce the labels of photos that had none before. */
function announceNew() {
  if (!state.view || state.preview) return;
  const fresh = known && state.view.labels.filter(({ id }) => !known.has(id) && photoOf(id));
  known = new Set(state.view.labels.map(({ id }) => id));
  if (!fresh?.length) return;
  const first = fresh.slice(0, 3).map((found) => `${photoOf(found.id).name}: ${inWords(found)}`);
  announce(`${count(fresh.length, "new label")}. ${first.join(". ")}`);
}

function choose(name) {
  find(name).addEventListener("change", ({ target }) => {
    choice[name] = target.value;
    showResults();
  });
}

export function listenInAsk() {
  droppable(find("ask"), null);
  find("sort").replaceChildren(...Object.entries(SORTS).map(([value, text]) => h("option", { value }, text)));
  choose("sort");
  choose("filter");
  find("results-bulk").append(bulk.words, bulk.accept, bulk.choose, bulk.remove, bulk.all, set(bulk.none, { "aria-label": "Select none" }));
  listenInGrid(showResults);
  find("ask-input").addEventListener("change", ({ target }) => {
    upload(null, [...target.files]);
    target.value = "";
  });
  find("ask-camera").addEventListener("click", () => openCamera(null));
  find("clear").addEventListener("click", async () => {
    const n = photosOf(null).length;
    if (await act(service.clearPhotos)) offerUndo(`${count(n, "photo")} cleared.`);
  });
}
