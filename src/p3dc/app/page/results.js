/** A card of the results: a photo, its label, and what can be done with it. */

import { choiceButton, openChoice } from "./choose.js";
import { button, h, icon, percent, percentInWords, set } from "./dom.js";
import { draggable } from "./dragging.js";
import { classOf, labelOf, lookNamed, lookOf } from "./lookup.js";
import { acceptPhotos, deletePhotos } from "./moves.js";
import { isCurrent, isSelected, listedIds, takenWith } from "./selection.js";
import { thumbnail } from "./service.js";
import { state } from "./store.js";
import { openWhy } from "./why.js";

export function makeResult({ id }) {
  const image = h("img", { src: thumbnail(id), alt: "", loading: "lazy", draggable: "false" });
  const label = h("strong", { "data-test": "label" });
  const probability = h("span", { class: "probability", "data-test": "probability" });
  const fill = h("span", { class: "fill" });
  const runnerUp = h("span", { class: "runner-up", "data-test": "runner-up" });
  const name = h("span", { class: "unseen" });
  const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
  const line = (...parts) => h("span", { class: "verdict-line" }, ...parts);
  const tick = h("span", { class: "tick", "aria-hidden": "true" }, icon("check"));
  const cell = (look, ...parts) => h("div", { class: look, role: "gridcell" }, ...parts);

  const accept = button("tool", "accept", () => acceptPhotos(takenWith(id)), icon("check"));
  const correct = choiceButton("button small", "correct", () => openChoice(correct, takenWith(id)));
  const why = button("tool", "why", () => openWhy(id, { among: listedIds() }), icon("why"));
  const remove = button("tool", "delete-photo", () => deletePhotos([id]), icon("close"));
  const tools = [accept, correct, why, remove];
  const node = h("div", { role: "row", "data-test": "result", "data-photo": id },
    cell("shot", image, tick),
    cell("verdict", line(swatch, label), line(h("span", { class: "bar-track", "aria-hidden": "true" }, fill), probability), runnerUp, name),
    cell("result-tools", ...tools));
  draggable(node, () => takenWith(id));

  let drawn = {};
  const update = (photo) => {
    const shown = stateOf(photo);
    const differs = (...parts) => parts.some((part) => shown[part] !== drawn[part]);
    if (differs("look", "waiting", "accepted")) {
      node.className = `card result ${shown.look}${shown.waiting ? " waiting" : ""}${shown.accepted ? " accepted" : ""}`;
      swatch.className = `swatch ${shown.look}`;
    }
    if (differs("unknown")) node.dataset.unknown = shown.unknown;
    if (differs("share")) fill.style.scale = `${shown.share ?? 0} 1`; // unlike a width it needs no layout
    if (differs("probability")) probability.textContent = shown.probability;
    if (differs("after")) runnerUp.textContent = shown.after;
    if (differs("label")) label.textContent = shown.label;
    if (differs("label", "name")) {
      set(accept, { "aria-label": `Accept ${shown.label} for ${shown.name}`, title: `Accept: this is ${shown.label}` });
    }
    if (differs("acceptable")) accept.hidden = !shown.acceptable;
    if (differs("classes")) correct.hidden = !shown.classes;
    if (differs("name")) {
      name.textContent = node.title = shown.name;
      set(correct, { "aria-label": `This is … ${shown.name}` });
      set(why, { "aria-label": `Why? ${shown.name}`, title: "Why? (W)" });
      set(remove, { "aria-label": `Delete ${shown.name}`, title: "Delete" });
    }
    if (differs("selected")) set(node, { "aria-selected": String(shown.selected) });
    if (differs("current")) for (const part of [node, ...tools]) part.tabIndex = shown.current ? 0 : -1;
    drawn = shown;
  };
  return { node, update };
}

/** All that a card shows: only what has changed of it is drawn again, since a point may move many times a second. */
function stateOf(photo) {
  const found = labelOf(photo.id);
  const own = {
    name: photo.name,
    selected: isSelected(photo.id),
    current: isCurrent(photo.id),
    classes: state.project.classes.length > 0,
    accepted: Boolean(photo.class),
  };
  if (photo.class) {
    return { ...own, look: lookOf(photo.class), label: classOf(photo.class).name, share: null, probability: "", after: "You said so", unknown: false };
  }
  const known = found && !found.unknown;
  return {
    ...own,
    look: known ? lookNamed(found.label) : "c-none",
    waiting: !found,
    unknown: Boolean(found?.unknown),
    label: found?.label ?? (state.view?.ready === false ? "No label yet" : "Looking …"),
    share: known ? found.probability : null,
    probability: known ? percent(found.probability) : "",
    after: found ? afterThat(found) : "",
    acceptable: Boolean(known),
  };
}

function afterThat({ unknown, runner_up: name, runner_up_probability: share }) {
  if (!name) return "";
  return unknown ? `likeliest ${name}, ${percent(share)}` : `then ${name}, ${percent(share)}`;
}

/** A label in a sentence. */
export function inWords(found) {
  const verdict = found.unknown ? "unknown" : `${found.label}, ${percentInWords(found.probability)}`;
  return `${verdict}, ${afterThat(found)}`;
}
