/** One pop-up menu for the page, and the menus of photos and classes. */

import { button, find, h, icon, set } from "./dom.js";
import { showNotice } from "./notices.js";
import * as service from "./service.js";
import { act, colourOf, state } from "./store.js";

/** Open a menu at `anchor`. Items: `{text, run}` with `icon` or `swatch`, `test`, `danger`; a string is a heading. */
export function openMenu(anchor, label, items) {
  const menu = find("menu");
  (anchor.closest("dialog") ?? document.body).append(menu); // outside an open dialog it would be inert
  menu.setAttribute("aria-label", label);
  menu.replaceChildren(...items.map((item) => entry(item, anchor)));
  menu.showPopover();
  const box = anchor.getBoundingClientRect();
  const left = Math.min(box.left, innerWidth - menu.offsetWidth - 8);
  const below = box.bottom + 4 + menu.offsetHeight < innerHeight;
  const above = Math.min(box.top - 4, innerHeight - 8) - menu.offsetHeight;
  menu.style.left = `${Math.max(8, left)}px`;
  menu.style.top = `${Math.max(8, below ? box.bottom + 4 : above)}px`;
  menu.querySelector("button")?.focus();
}

function entry(item, anchor) {
  if (typeof item === "string") return h("p", { class: "menu-head", role: "presentation" }, item);
  const run = () => {
    find("menu").hidePopover();
    anchor.focus({ preventScroll: true });
    item.run();
  };
  const mark = item.swatch ? h("span", { class: `swatch ${item.swatch}` }) : icon(item.icon);
  const node = button(item.danger ? "danger" : null, item.test, run, mark, h("span", {}, item.text));
  return set(node, { role: "menuitem" });
}

/** Arrow keys, Home and End inside the menu. */
export function listenInMenu() {
  find("menu").addEventListener("keydown", (event) => {
    const buttons = [...find("menu").querySelectorAll("button")];
    const here = buttons.indexOf(document.activeElement);
    const [next, last] = [here + 1, buttons.length - 1];
    const goal = { ArrowDown: next, ArrowUp: here + last, Home: 0, End: last }[event.key];
    if (event.key === "Tab") find("menu").hidePopover();
    if (goal === undefined) return;
    event.preventDefault();
    buttons[goal % buttons.length].focus();
  });
}

/** The classes that a photo can go to. */
export function placesFor(photo) {
  const moveTo = (id) => () => act(() => service.changePhoto(photo.id, { class: id }));
  const places = state.project.classes
    .filter(({ id }) => id !== photo.class)
    .map(({ id, name }) => ({ text: name, swatch: colourOf(id), test: "move-to", run: moveTo(id) }));
  if (photo.class) places.push({ text: "Photos to be labelled", icon: "ask", test: "move-to", run: moveTo(null) });
  return places;
}

/** Delete a photo, with a way back. */
export async function deletePhoto(photo) {
  if (await act(() => service.deletePhoto(photo.id))) offerUndo(`${photo.name} is deleted.`);
}

/** Delete a class, with a way back. */
export async function deleteClass({ id, name }) {
  if (await act(() => service.deleteClass(id))) offerUndo(`The class ${name} is deleted, with its photos.`);
}

/** A sentence with a button that undoes what it says, unless something else was done since. */
export function offerUndo(sentence) {
  const { revision } = state.project;
  const run = () => {
    if (state.project.revision === revision) act(service.undo);
    else showNotice("Something else was done since. Undo goes back step by step.");
  };
  showNotice(sentence, { text: "Undo", run });
}
