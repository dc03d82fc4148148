/** One pop-up menu for the page. */

import { button, find, h, icon, set } from "./dom.js";

/** Open a popover at `anchor`, inside the window. */
export function openAt(popover, anchor) {
  (anchor.closest("dialog") ?? find("main")).append(popover); // outside an open dialog it would be inert
  popover.showPopover();
  const box = anchor.getBoundingClientRect();
  const left = Math.min(box.left, innerWidth - popover.offsetWidth - 8);
  const below = box.bottom + 4 + popover.offsetHeight < innerHeight;
  const above = Math.min(box.top - 4, innerHeight - 8) - popover.offsetHeight;
  popover.style.left = `${Math.max(8, left)}px`;
  popover.style.top = `${Math.max(8, below ? box.bottom + 4 : above)}px`;
}

/** Open a menu at `anchor`. Items: `{text, run, icon, test}` and `danger`; a string is a heading. */
export function openMenu(anchor, label, items) {
  const menu = find("menu");
  menu.setAttribute("aria-label", label);
  menu.replaceChildren(...items.map((item) => entry(item, anchor)));
  openAt(menu, anchor);
  menu.querySelector("button")?.focus();
}

function entry(item, anchor) {
  if (typeof item === "string") return h("p", { class: "menu-head", role: "presentation" }, item);
  const run = () => {
    find("menu").hidePopover();
    anchor.focus({ preventScroll: true });
    item.run();
  };
  const node = button(item.danger ? "danger" : null, item.test, run, icon(item.icon), h("span", {}, item.text));
  return set(node, { role: "menuitem", tabindex: -1 });
}

/** Arrow keys, Home, End and first letters inside the menu. */
export function listenInMenu() {
  const menu = find("menu");
  menu.addEventListener("keydown", (event) => {
    const buttons = [...menu.querySelectorAll("button")];
    const here = buttons.indexOf(document.activeElement);
    const [next, last] = [here + 1, buttons.length - 1];
    const goal = { ArrowDown: next, ArrowUp: here + last, Home: 0, End: last }[event.key] ?? byLetter(buttons, here, event.key);
    if (event.key === "Tab") menu.hidePopover();
    else if (event.key === " " || event.key === "Enter") {
      if (!event.repeat) buttons[here]?.click(); // a key that is still held opened the menu
    } else if (goal !== undefined) buttons[goal % buttons.length].focus();
    else return;
    event.preventDefault();
  });
  // Where the key that opened the menu is let go above an item, it must not press it.
  menu.addEventListener("keyup", (event) => event.key === " " && event.preventDefault());
}

function byLetter(buttons, here, key) {
  if (key.length !== 1 || key === " ") return undefined;
  const fits = (_, i) => buttons[(here + 1 + i) % buttons.length].textContent.toLowerCase().startsWith(key.toLowerCase());
  const found = buttons.findIndex(fits);
  return found < 0 ? undefined : here + 1 + found;
}
