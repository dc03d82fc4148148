/** "This is …": a list of classes, the likeliest first, that is searched by typing and ends with a new class. */

import { button, find, h, icon, set } from "./dom.js";
import { labelOf, lookOf, photoOf, placeOf } from "./lookup.js";
import { moveToNewClass, movePhotos } from "./moves.js";
import { openAt } from "./menus.js";
import { state } from "./store.js";

/** Classes that photos may go to, the likeliest first. */
function likeliest(ids) {
  const sums = new Map();
  const add = (name, share) => sums.set(name, (sums.get(name) ?? 0) + (share ?? 0));
  for (const found of ids.map(labelOf)) {
    if (!found) continue;
    if (!found.unknown) add(found.label, found.probability);
    add(found.runner_up, found.runner_up_probability);
  }
  const sum = ({ name }) => sums.get(name) ?? 0;
  return state.project.classes
    .filter(({ id }) => !ids.every((photo) => photoOf(photo)?.class === id))
    .sort((a, b) => sum(b) - sum(a) || placeOf(a.id) - placeOf(b.id));
}

const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

/** Names that begin with what was typed come before names that hold it. */
function matching(classes, typed) {
  const text = plain(typed);
  const rank = ({ name }) => {
    const at = plain(name).indexOf(text);
    return at === 0 ? 0 : at > 0 ? 1 : 2;
  };
  return classes.filter((known) => rank(known) < 2).sort((a, b) => (text ? rank(a) - rank(b) : 0));
}

/**
 * Ask at `anchor` which class photos belong to, and move them there.
 * `before` is called once there is an answer.
 */
export function openChoice(anchor, ids, before = () => {}) {
  const box = find("choose");
  const classes = likeliest(ids);
  const taught = ids.some((id) => photoOf(id)?.class);
  const { name: longest } = state.project.limits;
  const list = h("ul", { role: "listbox", id: "choose-list", "aria-label": "Classes" });
  const field = h("input", {
    role: "combobox", "aria-expanded": "true", "aria-controls": "choose-list", "aria-autocomplete": "list",
    "aria-label": "Class, or the name of a new one", placeholder: "Class, or a new name", autocomplete: "off",
    spellcheck: "false", maxlength: longest, "data-test": "choose-field",
  });
  let options = [];
  let active = 0;

  const close = () => {
    box.hidePopover();
    anchor.focus({ preventScroll: true });
  };
  const choose = ({ run }) => {
    if (!run) return field.focus();
    close();
    before();
    run();
  };

  function build() {
    const typed = field.value.trim();
    options = matching(classes, typed).map(({ id, name }) => ({
      text: name, test: "choose-class", mark: h("span", { class: `swatch ${lookOf(id)}` }),
      key: placeOf(id) < 9 ? placeOf(id) + 1 : null, run: () => movePhotos(ids, id),
    }));
    if (taught && !typed) {
      options.push({ text: "Photos to be labelled", test: "choose-none", mark: icon("ask"), key: "U", run: () => movePhotos(ids, null) });
    }
    if (!state.project.classes.some(({ name }) => name === typed)) {
      options.push({
        text: typed ? `New class “${typed}”` : "New class …", test: "choose-new", mark: icon("plus"),
        run: typed ? () => moveToNewClass(ids, typed) : null,
      });
    }
    list.replaceChildren(...options.map((option, place) => set(
      h("li", { class: "choice", role: "option", id: `choice-${place}`, "data-test": option.test },
        option.mark, h("span", { class: "choice-name" }, option.text), option.key ? h("kbd", { "aria-hidden": "true" }, option.key) : null),
      { onclick: () => choose(option), onpointermove: () => activate(place) })));
    activate(0);
  }

  function activate(place) {
    list.children[active]?.setAttribute("aria-selected", "false");
    active = Math.max(0, Math.min(place, options.length - 1));
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === active)));
    field.setAttribute("aria-activedescendant", `choice-${active}`);
    list.children[active]?.scrollIntoView({ block: "nearest" });
  }

  field.addEventListener("input", build);
  field.addEventListener("keydown", (event) => {
    const n = options.length;
    const goal = { ArrowDown: (active + 1) % n, ArrowUp: (active + n - 1) % n, PageDown: active + 8, PageUp: active - 8 }[event.key];
    if (goal !== undefined) activate(goal);
    else if (event.key === "Enter") choose(options[active]);
    else if (event.key === "Escape" || event.key === "Tab") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  box.setAttribute("aria-label", "This is …");
  box.replaceChildren(field, list);
  build();
  openAt(box, anchor);
  field.focus({ preventScroll: true });
}

/** A button that asks what photos are. */
export const choiceButton = (looks, test, open, words = "This is …") =>
  set(button(looks, test, open, words), { "aria-haspopup": "dialog", title: "Say what it is, and it is taught" });
