/** The grid of results: one card is current, any number are selected, and keys act on them. */

import { openChoice } from "./choose.js";
import { count, find } from "./dom.js";
import { acceptPhotos, actByKey } from "./moves.js";
import { announce } from "./notices.js";
import { openWhy } from "./why.js";

const selected = new Set();
/** The current card; `stays` where its photo has gone and the place in the grid is what counts. */
const current = { id: null, place: 0, stays: false };
let anchor = null;
let ids = [];
let onChange = () => {};

const grid = () => find("results");
const cardOf = (id) => grid().querySelector(`[data-photo="${CSS.escape(id)}"]`);

export const selection = () => ids.filter((id) => selected.has(id));
export const isSelected = (id) => selected.has(id);
export const isCurrent = (id) => current.id === id;

/** The photos that an action on a card is about: its selection, or itself alone. */
export const takenWith = (id) => (selected.has(id) ? selection() : [id]);

/** The photos that a key is about: the selection, or the current card. */
const chosen = () => (selected.size ? selection() : current.id === null ? [] : [current.id]);

/** Take the list that is about to be shown; what is gone from it is no longer selected. */
export function takeList(latest) {
  const there = new Set(latest);
  for (const id of selected) if (!there.has(id)) selected.delete(id);
  if (!there.has(anchor)) anchor = null;
  ids = latest;
  if (!there.has(current.id)) current.stays = true;
  if (current.stays || current.id === null) current.id = ids[Math.min(current.place, ids.length - 1)] ?? null;
  else current.place = ids.indexOf(current.id);
}

let changing = false;

/** Change the cards with `work`; a focus inside the grid goes to the current card if its own has gone. */
export function keepingFocus(work) {
  const before = document.activeElement;
  const had = grid().contains(before);
  changing = true;
  work();
  changing = false;
  if (had && document.activeElement !== before) focusCurrent();
}

function goTo(id) {
  Object.assign(current, { id, place: ids.indexOf(id), stays: false });
}

/** Focus the current card, where keys act. */
export function focusCurrent() {
  if (current.id !== null) cardOf(current.id)?.focus({ preventScroll: true });
}

function goToAndShow(id) {
  goTo(id);
  onChange();
  focusCurrent();
  cardOf(id)?.scrollIntoView({ block: "nearest" });
}

function selectOnly(some) {
  selected.clear();
  for (const id of some) selected.add(id);
}

function selectTo(id) {
  anchor ??= current.id;
  const [a, b] = [ids.indexOf(anchor), ids.indexOf(id)].sort((x, y) => x - y);
  selectOnly(ids.slice(a, b + 1));
}

function toggle(id) {
  if (!selected.delete(id)) selected.add(id);
  anchor = id;
}

export function selectNone() {
  selectOnly([]);
  anchor = null;
  onChange();
}

export function selectAll() {
  selectOnly(ids);
  onChange();
  announce(`${count(ids.length, "photo")} selected.`);
}

/** Photos next to one, in the order of the grid: for the large view. */
export const listedIds = () => ids;

function columns() {
  const cards = [...grid().children];
  const next = cards.findIndex((card) => card.offsetTop > cards[0].offsetTop);
  return next < 0 ? cards.length : next;
}

function goal(key) {
  const [here, last, wide] = [current.place, ids.length - 1, columns()];
  const places = {
    ArrowLeft: here - 1, ArrowRight: here + 1, ArrowUp: here - wide, ArrowDown: here + wide,
    PageUp: here - 3 * wide, PageDown: here + 3 * wide, Home: 0, End: last,
  };
  const place = places[key];
  if (place === undefined) return undefined;
  if (key === "ArrowUp" && place < 0) return ids[here];
  return ids[Math.max(0, Math.min(place, last))];
}

function onKey(event) {
  const { key, shiftKey } = event;
  const onButton = event.target.closest("button");
  const strong = event.ctrlKey || event.metaKey;
  const next = event.altKey ? undefined : goal(key);
  if (next !== undefined) {
    if (shiftKey) selectTo(next);
    else if (!strong) anchor = null;
    goToAndShow(next);
  } else if (strong && key.toLowerCase() === "a") selectAll();
  else if (strong || event.altKey || event.repeat || (onButton && (key === "Enter" || key === " "))) return;
  else if (key === " ") {
    toggle(current.id);
    onChange();
  } else if (key === "Escape" && selected.size) selectNone();
  else if (key.toLowerCase() === "w") openWhy(current.id, { among: ids });
  else if (key.toLowerCase() === "t") openChoice(cardOf(current.id), chosen());
  else if (key === "Enter") acceptPhotos(chosen());
  else if (!actByKey(key, chosen())) return;
  event.preventDefault();
}

function onClick(event) {
  const card = event.target.closest("[data-photo]");
  if (!card || event.target.closest("button")) return;
  const id = card.dataset.photo;
  if (event.shiftKey) selectTo(id);
  else if (event.ctrlKey || event.metaKey || event.pointerType === "touch" || event.target.closest(".tick")) toggle(id);
  else {
    selectOnly(selected.size === 1 && selected.has(id) ? [] : [id]);
    anchor = id;
  }
  goTo(id);
  onChange();
  card.focus({ preventScroll: true });
}

/** Listen in the grid; `changed` redraws what shows which card is current and which are selected. */
export function listenInGrid(changed) {
  onChange = changed;
  grid().addEventListener("keydown", onKey);
  grid().addEventListener("click", onClick);
  grid().addEventListener("mousedown", (event) => {
    if (event.shiftKey) event.preventDefault(); // or the text between two cards would be selected
  });
  grid().addEventListener("dblclick", (event) => {
    const card = event.target.closest("[data-photo]");
    if (card && !event.target.closest("button")) openWhy(card.dataset.photo, { among: ids });
  });
  grid().addEventListener("focusin", (event) => {
    const id = event.target.closest("[data-photo]")?.dataset.photo;
    if (!id || id === current.id || changing) return;
    goTo(id);
    onChange();
  });
}
