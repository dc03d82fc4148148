/** A taught photo as it is shown in its class, and what can be done with it. */

import { openChoice } from "./choose.js";
import { button, h, icon, set } from "./dom.js";
import { draggable } from "./dragging.js";
import { doubtAbout, photosOf } from "./lookup.js";
import { openMenu } from "./menus.js";
import { deletePhotos } from "./moves.js";
import { thumbnail } from "./service.js";
import { openWhy } from "./why.js";

/** A tile in a class: the picture, which opens the explanation, and the button of its menu. */
export function makeTile({ id }) {
  let photo;
  const image = h("img", { src: thumbnail(id), alt: "", loading: "lazy", draggable: "false" });
  const mark = h("span", { class: "mark" }, icon("warning"));
  const among = () => photosOf(photo.class).map((other) => other.id);
  const open = button("tile-open", "photo", () => openWhy(id, { among: among() }), image, mark);
  const more = set(button("more", "move-menu", openPhotoMenu, icon("more")), { "aria-haspopup": "menu" });
  const node = h("li", { class: "tile", "data-photo": id }, open, more);
  draggable(node, () => [id]);
  node.addEventListener("contextmenu", (event) => {
    event.preventDefault();
    if (event.buttons) window.addEventListener("mouseup", openPhotoMenu, { once: true }); // letting go would close it
    else openPhotoMenu();
  });
  node.addEventListener("keydown", ({ key }) => {
    if (key === "Delete") deletePhotos([id]);
  });

  function openPhotoMenu() {
    openMenu(more, `What to do with ${photo.name}`, [
      { text: "What pulled it?", icon: "why", test: "menu-why", run: () => openWhy(id, { among: among() }) },
      { text: "Move to …", icon: "teach", test: "move-to", run: () => openChoice(more, [id]) },
      { text: "Rename", icon: "pencil", test: "rename-photo", run: () => openWhy(id, { rename: true, among: among() }) },
      { text: "Delete", icon: "trash", test: "delete-photo", danger: true, run: () => deletePhotos([id]) },
    ]);
  }

  let drawn = "";
  const update = (latest) => {
    photo = latest;
    const doubt = doubtAbout(id);
    const now = JSON.stringify([photo.name, doubt]);
    if (now === drawn) return;
    drawn = now;
    open.setAttribute("aria-label", doubt ? `${photo.name}. ${doubt}` : photo.name);
    open.title = doubt ? `${photo.name}\n${doubt}` : photo.name;
    more.setAttribute("aria-label", `Menu of ${photo.name}`);
    mark.hidden = !doubt;
  };
  return { node, update };
}
