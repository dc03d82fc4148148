/** Part 1: classes and their photos. */

import { openCamera } from "./camera.js";
import { showChips } from "./chips.js";
import { button, count, find, h, icon, keyed, set } from "./dom.js";
import { droppable } from "./drop.js";
import { lookOf, photosOf } from "./lookup.js";
import { openMenu } from "./menus.js";
import { deleteClass } from "./moves.js";
import { editableName } from "./name.js";
import { makeTile } from "./photo.js";
import { pictureOf } from "./pictures.js";
import { createClass, renameClass } from "./service.js";
import { act, state } from "./store.js";
import { onTheirWay, placeholders, upload } from "./uploads.js";

function makeCard({ id }) {
  let known;
  const heading = h("h3", { class: "unseen" });
  const swatch = h("span", {});
  const rename = (text) => act(() => renameClass(id, text));
  const name = editableName({ "data-test": "class-name", "aria-label": "Name of the class" }, rename);
  const size = h("span", { class: "size" });
  const more = button("tool", "class-menu", openClassMenu, icon("more"));
  more.setAttribute("aria-haspopup", "menu");
  const tiles = h("ul", { class: "tiles" });
  const empty = h("p", { class: "empty" }, "Drop photos here");
  const input = h("input", { class: "unseen", type: "file", "data-test": "add-photos", accept: "image/*", multiple: true });
  input.addEventListener("change", () => {
    upload(id, [...input.files]);
    input.value = "";
  });
  const camera = button("button small", "class-camera", () => openCamera(id), icon("camera"));
  const node = h("article", { class: "card class", "data-test": "class-card", "data-class": id },
    heading,
    h("header", {}, swatch, name.input, more),
    tiles, empty,
    h("div", { class: "row" }, h("label", { class: "button small" }, icon("plus"), "Add photos", input), camera, size));
  droppable(node, id);

  function openClassMenu() {
    openMenu(more, `What to do with ${known.name}`, [
      { text: "Rename", icon: "pencil", test: "rename-class", run: () => name.input.select() },
      { text: "Delete class", icon: "trash", test: "delete-class", danger: true, run: () => deleteClass(known) },
    ]);
  }

  const update = (latest) => {
    known = latest;
    const photos = photosOf(id);
    const coming = onTheirWay(id);
    heading.textContent = known.name;
    swatch.className = `swatch ${lookOf(id)}`;
    name.show(known.name);
    size.textContent = coming ? `${coming} on the way` : count(photos.length, "photo");
    set(more, { "aria-label": `Menu of ${known.name}` });
    set(name.input, { title: known.name });
    set(input, { "aria-label": `Add photos to ${known.name}` });
    set(camera, { "aria-label": `Take photos for ${known.name} with the camera` });
    empty.hidden = photos.length + coming > 0;
    keyed(tiles, [...photos, ...placeholders(id)], (photo) => (photo.coming ? makePlaceholder(photo) : makeTile(photo)));
  };
  return { node, update };
}

const makePlaceholder = ({ coming: { name, file } }) => ({
  node: h("li", { class: "tile coming", title: name }, pictureOf(file)),
  update: () => {},
});

export function showClasses() {
  showChips();
  keyed(find("classes"), state.project.classes, makeCard);
}

export function listenInTeach() {
  const field = find("new-class-name");
  find("new-class-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = field.value.trim();
    if (!name) return field.focus();
    const made = await act(() => createClass(name));
    if (!made) return field.select();
    if (field.value.trim() !== name) return; // the next name was begun meanwhile
    field.value = "";
    const card = document.querySelector(`[data-class="${CSS.escape(made.id)}"]`);
    if (event.target.contains(document.activeElement)) card?.querySelector("input[type=file]").focus();
  });
}
