/** Part 3, the map: photos before and after base classes pulled them, classes, and photos to be labelled. */

import { find, h, keyed, percent, s } from "./dom.js";
import { placeLabels } from "./labels.js";
import { thumbnail } from "./service.js";
import { colourNamed, colourOf, shownView, state } from "./store.js";
import { openWhy } from "./why.js";

const EDGE = 22;
const DOT = 3;
const HEAD = 4;

const layers = Object.fromEntries(["support", "queries", "prototypes"].map((name) => [name, s("g", { class: name })]));
const svg = s("svg", { role: "group" }, ...Object.values(layers));
svg.setAttribute("aria-label", "Map of the photos. Arrow keys go from photo to photo, Enter says why.");
const tip = h("div", { class: "tip", hidden: true });
const message = h("p", { class: "map-message" });

let shown = new Map();
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

function makeMark(kind, { id }, shapes, update) {
  const node = s("g", { class: `point ${kind}`, role: "button", tabindex: -1, "data-photo": id }, ...shapes);
  node.addEventListener("click", () => openWhy(id));
  return { node, update };
}

function makeSupport(item) {
  const line = s("path", { class: "arrow", "data-test": "map-arrow" });
  const from = s("circle", { class: "from", r: DOT });
  const to = s("circle", { class: "to", r: DOT });
  const hit = s("circle", { class: "hit", r: 10 });
  const mark = makeMark("support", item, [line, from, to, hit], (latest) => {
    line.setAttribute("d", arrow(latest.before, latest.after));
    for (const [circle, [x, y]] of [[from, latest.before], [to, latest.after], [hit, latest.after]]) {
      circle.setAttribute("cx", x);
      circle.setAttribute("cy", y);
    }
    mark.node.setAttribute("class", `point support ${latest.colour}`);
    mark.node.setAttribute("aria-label", `${latest.name}, ${latest.says}`);
    mark.node.dataset.class = latest.class;
  });
  return mark;
}

function makeQuery(item) {
  const square = s("rect", { class: "asked", x: -4, y: -4, width: 8, height: 8, rx: 1 });
  const mark = makeMark("query", item, [square, s("circle", { class: "hit", r: 10 })], (latest) => {
    mark.node.setAttribute("transform", `translate(${latest.place})`);
    mark.node.setAttribute("class", `point query ${latest.colour}`);
    mark.node.setAttribute("aria-label", `${latest.name}, ${latest.says}`);
  });
  return mark;
}

function makePrototype() {
  const text = s("text", {});
  const node = s("g", {}, s("path", { class: "diamond", d: "M0-8 8 0 0 8-8 0Z" }), text);
  const update = ({ id, colour, name, place, at }) => {
    node.setAttribute("class", `prototype ${colour}`);
    node.setAttribute("transform", `translate(${place})`);
    node.dataset.class = id;
    text.textContent = name;
    text.setAttribute("x", at.x);
    text.setAttribute("y", at.y);
    text.setAttribute("text-anchor", at.anchor);
  };
  return { node, update };
}

export function showMap() {
  const view = shownView();
  const map = view?.map;
  svg.toggleAttribute("hidden", !map);
  message.hidden = Boolean(map);
  message.textContent = view?.hint ?? "";
  if (!map) return;

  const { width, height } = find("map-frame").getBoundingClientRect();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
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

/** The marks to draw, with their position, colour and words; those of deleted photos are left out. */
function marksOf({ map, labels: found }, place) {
  const photos = new Map(state.project.photos.map(({ id, name }) => [id, name]));
  const classes = new Map(state.project.classes.map(({ id, name }) => [id, name]));
  const labels = new Map(found.map((label) => [label.id, label]));

  const support = map.support
    .filter(({ id, class: of }) => photos.has(id) && classes.has(of))
    .map(({ id, class: of, from, to }) => ({
      id,
      class: of,
      before: place(from),
      after: place(to),
      colour: colourOf(of),
      name: photos.get(id),
      says: `taught as ${classes.get(of)}`,
    }));
  const queries = map.queries
    .filter(({ id }) => photos.has(id))
    .map(({ id, at }) => ({ id, place: place(at), name: photos.get(id), ...judged(labels.get(id)) }));
  const prototypes = map.prototypes
    .filter(({ class: of }) => classes.has(of))
    .map(({ class: of, at }) => ({ id: of, place: place(at), colour: colourOf(of), name: shortened(classes.get(of)) }));
  return { support, queries, prototypes };
}

function judged(label) {
  if (!label) return { colour: "c-none", says: "no label yet" };
  if (label.unknown) return { colour: "c-none", says: "unknown" };
  return { colour: colourNamed(label.label), says: `${label.label}, ${percent(label.probability)}` };
}

const shortened = (name) => (name.length > 20 ? `${name.slice(0, 19)}…` : name);

function showTip(mark) {
  const { id, name, says } = shown.get(mark.dataset.photo);
  tip.replaceChildren(h("img", { src: thumbnail(id), alt: "" }), h("p", {}, h("strong", {}, name), h("br"), says));
  tip.hidden = false;
  const frame = find("map-frame").getBoundingClientRect();
  const box = mark.querySelector(".hit").getBoundingClientRect();
  const x = box.left + box.width / 2 - frame.left;
  const y = box.top - frame.top;
  tip.style.left = `${Math.min(Math.max(8, x - tip.offsetWidth / 2), frame.width - tip.offsetWidth - 8)}px`;
  tip.style.top = `${y - tip.offsetHeight > 0 ? y - tip.offsetHeight - 2 : y + box.height + 2}px`;
}

/** Dim all other classes while the pointer is on one. */
function dimOthers(classId) {
  svg.classList.toggle("dimmed", classId !== null);
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
  const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!move) return;
  event.preventDefault();
  const next = marks[(here + move + marks.length) % marks.length];
  marks[here].setAttribute("tabindex", -1);
  next.setAttribute("tabindex", 0);
  next.focus();
}

export function listenInMap() {
  find("map-frame").append(svg, message, tip);
  new ResizeObserver(() => state.project && showMap()).observe(find("map-frame"));
  svg.addEventListener("keydown", step);
  for (const kind of ["pointerover", "focusin"]) {
    svg.addEventListener(kind, ({ target }) => {
      const mark = target.closest(".point");
      if (mark) showTip(mark);
      dimOthers(target.closest(".prototype")?.dataset.class ?? null);
    });
  }
  for (const kind of ["pointerleave", "focusout"]) {
    svg.addEventListener(kind, () => {
      tip.hidden = true;
      dimOthers(null);
    });
  }
}
