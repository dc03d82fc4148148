/** Part 3, the map: photos before and after base classes pulled them, classes, and photos to be labelled. */

import { marker, outline } from "./colours.js";
import { find, h, keyed, percent, s, set } from "./dom.js";
import { placeLabels } from "./labels.js";
import { classNamed, classOf, labelOf, lookOf, photoOf, placeOf } from "./lookup.js";
import { thumbnail } from "./service.js";
import { shownView, state } from "./store.js";
import { openWhy } from "./why.js";

const EDGE = 22;
const DOT = 3;
const ASKED = 4.5;
const CLASS = 8;
const HEAD = 4;

const layers = Object.fromEntries(["support", "queries", "prototypes"].map((name) => [name, s("g", { class: name })]));
const svg = s("svg", { role: "group" }, ...Object.values(layers));
svg.setAttribute("aria-label", "Map of the photos. Arrow keys go from photo to photo, Enter says why.");
const tip = h("div", { class: "tip", hidden: true });
const message = h("p", { class: "map-message" });

let shown = new Map();
/** The size of the map, which is not asked for while cards are changing: that would cost a layout. */
let frame = { width: 0, height: 0 };
let extent = { revision: null, low: [0, 0], high: [0, 0] };

/** Grow the box around all points so far; a new revision starts with a new box. */
function widen(revision, points) {
  if (extent.revision !== revision) extent = { revision, low: [...points[0]], high: [...points[0]] };
  for (const point of points) {
    for (const axis of [0, 1]) {
      extent.low[axis] = Math.min(extent.low[axis], point[axis]);
      extent.high[axis] = Math.max(extent.high[axis], point[axis]);
    }
  }
}

/** From the map's coordinates to pixels, the same scale along both axes. */
function projection(width, height) {
  const span = [0, 1].map((axis) => Math.max(extent.high[axis] - extent.low[axis], 0.01));
  const scale = Math.min((width - 2 * EDGE) / span[0], (height - 2 * EDGE) / span[1]);
  const middle = [0, 1].map((axis) => (extent.high[axis] + extent.low[axis]) / 2);
  return ([x, y]) => [width / 2 + scale * (x - middle[0]), height / 2 - scale * (y - middle[1])];
}

/** To tenths of a pixel: what moves less is not drawn again. */
const rounded = (place) => place.map((value) => Math.round(10 * value) / 10);

/** A line from the hollow dot to the filled one, with a head where there is room for it. */
function arrow([x1, y1], [x2, y2]) {
  const length = Math.hypot(x2 - x1, y2 - y1);
  if (length < 1) return "";
  const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
  const [endX, endY] = [x2 - DOT * ux, y2 - DOT * uy];
  const side = (turn) => `${endX - HEAD * ux + turn * 3 * uy} ${endY - HEAD * uy - turn * 3 * ux}`;
  const head = length > 2 * DOT + 3 ? `M${side(1)}L${endX} ${endY}L${side(-1)}` : "";
  return `M${x1 + DOT * ux} ${y1 + DOT * uy}L${endX} ${endY}${head}`;
}

/** A mark with an outline of its marker, which `move` puts into place; only what has changed is drawn again. */
function makeMark(kind, { id }, shapes, outlined, size, move) {
  const node = s("g", { class: `point ${kind}`, role: "button", tabindex: -1, "data-photo": id }, ...shapes);
  node.addEventListener("click", () => openWhy(id));
  let drawn = {};
  const update = (latest) => {
    move(latest, node);
    if (latest.marker !== drawn.marker) set(outlined, { d: outline(latest.marker, size) });
    if (["look", "name", "says", "class"].some((part) => latest[part] !== drawn[part])) describe(node, kind, latest);
    drawn = latest;
  };
  return { node, update };
}

function makeSupport(item) {
  const line = s("path", { class: "arrow", "data-test": "map-arrow" });
  const from = s("circle", { class: "from", r: DOT });
  const shape = s("path", { class: "to" });
  const to = s("g", { class: "after" }, shape, s("circle", { class: "hit", r: 10 }));
  return makeMark("support", item, [line, from, to], shape, DOT + 0.5, ({ before, after }) => {
    set(line, { d: arrow(rounded(before), rounded(after)) });
    set(from, { transform: `translate(${rounded(before)})` });
    set(to, { transform: `translate(${rounded(after)})` });
  });
}

function makeQuery(item) {
  const shape = s("path", { class: "asked" });
  return makeMark("query", item, [shape, s("circle", { class: "hit", r: 10 })], shape, ASKED, ({ place }, node) => {
    set(node, { transform: `translate(${rounded(place)})` });
  });
}

function describe(node, kind, { look, name, says, class: of }) {
  const lit = node.classList.contains("lit") ? " lit" : "";
  set(node, { class: `point ${kind} ${look}${lit}`, "aria-label": `${name}, ${says}`, "data-class": of });
}

function makePrototype() {
  const text = s("text", {});
  const shape = s("path", { class: "centre" });
  const node = s("g", {}, shape, text);
  const update = ({ id, look, name, place, at, crowded }) => {
    set(node, { class: `prototype ${look}${crowded ? " crowded" : ""}`, transform: `translate(${rounded(place)})`, "data-class": id });
    set(shape, { d: outline(marker(placeOf(id)), CLASS) });
    if (text.textContent !== name) text.textContent = name;
    set(text, { x: at.x, y: at.y, "text-anchor": at.anchor });
  };
  return { node, update };
}

export function showMap() {
  const view = shownView();
  const map = view?.map;
  svg.toggleAttribute("hidden", !map);
  message.hidden = Boolean(map);
  message.textContent = view?.hint ?? "";
  if (!map || !frame.width) return;

  const { width, height } = frame;
  set(svg, { viewBox: `0 0 ${width} ${height}` });
  const ends = map.support.flatMap(({ from, to }) => [from, to]);
  widen(view.revision, [...ends, ...map.prototypes.map(({ at }) => at), ...map.queries.map(({ at }) => at)]);
  const { support, queries, prototypes } = marksOf(view, projection(width, height));
  const points = [...support.map(({ after }) => after), ...queries.map(({ place }) => place)];
  placeLabels(prototypes, points, width, height);

  shown = new Map([...support, ...queries].map((item) => [item.id, item]));
  keyed(layers.support, support, makeSupport);
  keyed(layers.queries, queries, makeQuery);
  keyed(layers.prototypes, prototypes, makePrototype);
  if (!svg.querySelector('.point[tabindex="0"]')) svg.querySelector(".point")?.setAttribute("tabindex", 0);
}

/** The marks to draw, with their position, look and words; those of deleted photos are left out. */
function marksOf({ map }, place) {
  const own = (of) => ({ class: of, look: lookOf(of), marker: marker(placeOf(of)) });
  const support = map.support
    .filter(({ id, class: of }) => photoOf(id) && classOf(of))
    .map(({ id, class: of, from, to }) => ({
      id, ...own(of), before: place(from), after: place(to), name: photoOf(id).name, says: `taught as ${classOf(of).name}`,
    }));
  const queries = map.queries
    .filter(({ id }) => photoOf(id))
    .map(({ id, at }) => ({ id, place: place(at), name: photoOf(id).name, ...judged(labelOf(id), own) }));
  const prototypes = map.prototypes
    .filter(({ class: of }) => classOf(of))
    .map(({ class: of, at }) => ({ id: of, place: place(at), look: lookOf(of), name: shortened(classOf(of).name) }));
  return { support, queries, prototypes };
}

const none = { class: null, look: "c-none", marker: marker(null) };

function judged(label, own) {
  const known = label && !label.unknown && classNamed(label.label);
  if (!known) return { ...none, says: label?.unknown ? "unknown" : "no label yet" };
  return { ...own(known.id), says: `${label.label}, ${percent(label.probability)}` };
}

const shortened = (name) => (name.length > 20 ? `${name.slice(0, 19)}…` : name);

function showTip(mark) {
  const { id, name, says } = shown.get(mark.dataset.photo);
  tip.replaceChildren(h("img", { src: thumbnail(id), alt: "" }), h("p", {}, h("strong", {}, name), h("br"), says));
  tip.hidden = false;
  const around = find("map-frame").getBoundingClientRect();
  const box = mark.querySelector(".hit").getBoundingClientRect();
  const x = box.left + box.width / 2 - around.left;
  const y = box.top - around.top;
  tip.style.left = `${Math.min(Math.max(8, x - tip.offsetWidth / 2), around.width - tip.offsetWidth - 8)}px`;
  tip.style.top = `${y - tip.offsetHeight > 0 ? y - tip.offsetHeight - 2 : y + box.height + 2}px`;
}

/** Dim all other classes while the pointer is on one, and show its name even if it had no room. */
function dimOthers(classId, dimmed) {
  svg.classList.toggle("dimmed", dimmed);
  for (const mark of svg.querySelectorAll("[data-class]")) mark.classList.toggle("in", mark.dataset.class === classId);
}

function step(event) {
  const marks = [...svg.querySelectorAll(".point")];
  const here = marks.indexOf(event.target.closest(".point"));
  if (here < 0) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    return openWhy(marks[here].dataset.photo);
  }
  const places = { ArrowRight: here + 1, ArrowDown: here + 1, ArrowLeft: here - 1, ArrowUp: here - 1, Home: 0, End: -1 };
  const goal = places[event.key];
  if (goal === undefined) return;
  event.preventDefault();
  const next = marks[(goal + marks.length) % marks.length];
  marks[here].setAttribute("tabindex", -1);
  next.setAttribute("tabindex", 0);
  next.focus();
}

export function listenInMap() {
  find("map-frame").append(svg, message, tip);
  new ResizeObserver(([{ contentRect }]) => {
    frame = contentRect;
    if (state.project) showMap();
  }).observe(find("map-frame"));
  svg.addEventListener("keydown", step);
  for (const kind of ["pointerover", "focusin"]) {
    svg.addEventListener(kind, ({ target }) => {
      const mark = target.closest(".point");
      if (mark) showTip(mark);
      dimOthers(target.closest("[data-class]")?.dataset.class ?? null, Boolean(target.closest(".prototype")));
    });
  }
  for (const kind of ["pointerleave", "focusout"]) {
    svg.addEventListener(kind, () => {
      tip.hidden = true;
      dimOthers(null, false);
    });
  }
}
