/** How the photos to be labelled helped, and groups of them that wait for a name. */

import { button, count, find, h, keyed, percentInWords } from "./dom.js";
import { photoOf } from "./lookup.js";
import { announce } from "./notices.js";
import { createClass, thumbnail } from "./service.js";
import { act, shownView, state } from "./store.js";
import { openWhy } from "./why.js";

const THUMBNAILS = 3;

function makeGroup({ id }) {
  let ids;
  const photos = h("ul", { class: "row" });
  const words = h("p", {});
  const { name: longest } = state.project.limits;
  const field = h("input", { "data-test": "group-name", placeholder: "Name of a new class", autocomplete: "off", maxlength: longest, "aria-label": "Name of the class to make of them" });
  const form = h("form", { class: "row", onsubmit: name }, field, h("button", { class: "button small", "data-test": "name-group" }, "Make a class"));
  const node = h("li", { class: "card group", "data-test": "group", "data-group": id }, photos, words, form);

  async function name(event) {
    event.preventDefault();
    const [text, moved] = [field.value.trim(), ids];
    if (!text) return field.focus();
    if (!(await act(() => createClass(text, moved)))) return field.select();
    announce(`${count(moved.length, "photo")} moved to the new class ${text}.`);
  }

  const update = (latest) => {
    ids = latest.ids;
    words.textContent = `${count(ids.length, "photo")} look like one another and like none of your classes.`;
    keyed(photos, ids.slice(0, THUMBNAILS).map((photo) => ({ id: photo })), makeThumbnail);
  };
  return { node, update };
}

function makeThumbnail({ id }) {
  const open = button("tile-open", "group-photo", () => openWhy(id), h("img", { src: thumbnail(id), alt: "", loading: "lazy" }));
  const update = () => {
    open.setAttribute("aria-label", `Why ${photoOf(id)?.name ?? "this photo"}?`);
  };
  return { node: h("li", {}, open), update };
}

export function showGroups() {
  const pile = shownView()?.pile;
  const helped = pile?.used >= 0.005;
  find("pile").hidden = !helped;
  find("pile").textContent = helped
    ? `The photos to be labelled helped: ${percentInWords(pile.used)} of what is known of the classes comes from them.`
    : "";
  keyed(find("groups"), (pile?.groups ?? []).map((ids) => ({ id: ids[0], ids })), makeGroup);
}
