/** A photo as it is shown in lists, and what can be done with it. */

import { button, h, icon } from "./dom.js";
import { draggable } from "./drop.js";
import { deletePhoto, openMenu, placesFor } from "./menus.js";
import { thumbnail } from "./service.js";
import { doubtAbout } from "./store.js";
import { openWhy } from "./why.js";

/** The menu of a photo: why, move, delete. */
function openPhotoMenu(anchor, photo) {
  const places = placesFor(photo);
  openMenu(anchor, `What to do with ${photo.name}`, [
    { text: photo.class ? "What pulled it?" : "Why?", icon: "why", test: "menu-why", run: () => openWhy(photo.id) },
    ...(places.length ? ["Move to", ...places] : []),
    "Photo",
    { text: "Rename", icon: "pencil", test: "rename-photo", run: () => openWhy(photo.id, { rename: true }) },
    { text: "Delete", icon: "trash", test: "delete-photo", danger: true, run: () => deletePhoto(photo) },
  ]);
}

/** A tile in a class: the picture, which opens the explanation, and the button of its menu. */
export function makeTile({ id }) {
  let photo;
  const image = h("img", { src: thumbnail(id), alt: "", loading: "lazy", draggable: "false" });
  const mark = h("span", { class: "mark" }, icon("warning"));
  const open = button("tile-open", "photo", () => openWhy(id), image, mark);
  const more = button("more", "move-menu", () => openPhotoMenu(more, photo), icon("more"));
  more.setAttribute("aria-haspopup", "menu");
  const node = h("li", { class: "tile", "data-photo": id }, open, more);
  draggable(node, id);
  node.addEventListener("contextmenu", (event) => {
    event.preventDefault();
    openPhotoMenu(more, photo);
  });
  node.addEventListener("keydown", ({ key }) => {
    if (key === "Delete") deletePhoto(photo);
  });

  const update = (latest) => {
    photo = latest;
    const doubt = doubtAbout(id);
    open.setAttribute("aria-label", doubt ? `${photo.name}. ${doubt}` : photo.name);
    open.title = doubt ? `${photo.name}\n${doubt}` : photo.name;
    more.setAttribute("aria-label", `Menu of ${photo.name}`);
    mark.hidden = !doubt;
  };
  return { node, update };
}
