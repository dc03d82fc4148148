/** All classes at a glance: chips that take photos, show the key of a class, and lead to its card. */

import { find, h, keyed, set } from "./dom.js";
import { droppable } from "./drop.js";
import { lookOf, photosOf, placeOf } from "./lookup.js";
import { state } from "./store.js";

const FEWEST = 3;
const MANY = 20;
const KEYS = 9;

function makeChip({ id }) {
  const swatch = h("span", {});
  const name = h("span", { class: "chip-name" });
  const size = h("span", { class: "chip-size" });
  const key = h("kbd", { "aria-hidden": "true" });
  const go = () => {
    const card = find("classes").querySelector(`[data-class="${CSS.escape(id)}"]`);
    card.scrollIntoView({ block: "nearest" });
    card.querySelector("input").focus({ preventScroll: true });
  };
  const open = h("button", { class: "chip", "data-test": "chip", onclick: go }, swatch, name, size, key);
  const node = h("li", {}, open);
  droppable(open, id);
  let drawn = "";
  const update = (known) => {
    const shown = [known.name, photosOf(id).length, placeOf(id)];
    if (JSON.stringify(shown) === drawn) return;
    drawn = JSON.stringify(shown);
    swatch.className = `swatch ${lookOf(id)}`;
    name.textContent = known.name;
    size.textContent = shown[1];
    key.textContent = shown[2] < KEYS ? shown[2] + 1 : "";
    key.hidden = shown[2] >= KEYS;
    set(open, { title: `${known.name}. Drop photos here${shown[2] < KEYS ? `, or press ${shown[2] + 1} on a result` : ""}` });
  };
  return { node, update };
}

export function showChips() {
  const { classes } = state.project;
  find("chips").hidden = classes.length < FEWEST;
  find("chips").classList.toggle("many", classes.length > MANY);
  keyed(find("chips"), classes.length < FEWEST ? [] : classes, makeChip);
}
