/** Part 3, how much each example leans on what it resembles: a point inside x̄, s̄, t̄ of the paper sets α and β. */

import { openConfusion } from "./confusion.js";
import { CORNERS, hundredths, placeOf, pointAt } from "./corners.js";
import { button, count, decimal, find, h, percent, s, set } from "./dom.js";
import { keep, keepSoon, move } from "./moving.js";
import { clearPoint, thumbnail } from "./service.js";
import { photoOf } from "./lookup.js";
import { act, shownAccuracy, shownView, state } from "./store.js";
import { openWhy } from "./why.js";

const STEP = 0.05;
const PAGE = 0.2;
const MOST_NAMED = 3;

const corner = ([x, y], anchor, sign, words) => s("text", { x, y, "text-anchor": anchor, class: "corner" },
  s("tspan", { class: "sign" }, sign),
  s("tspan", { dx: 6 }, words));

const ring = s("circle", { class: "auto-ring", r: 13, hidden: true });
const handle = s("g", { class: "handle", role: "slider", tabindex: -1, "aria-valuemin": 0, "aria-valuemax": 1 },
  s("circle", { class: "halo", r: 20 }), s("circle", { class: "knob", r: 9 }));
handle.dataset.test = "triangle-handle";
handle.setAttribute("aria-label", "How much examples lean. Left is more α, right more β, up less of both, down more");
const ways = Object.values(CORNERS).map(() => s("line", { class: "way" }));
const drawing = s("svg", { class: "triangle", role: "group", viewBox: "0 0 300 270", "data-test": "triangle" },
  s("path", { class: "area", d: `M${CORNERS.itself}L${CORNERS.sample}L${CORNERS.task}Z` }),
  ...ways, ring, handle,
  corner([150, 20], "middle", "x̄", "itself"),
  corner([6, 262], "start", "s̄", "what it resembles"),
  corner([294, 262], "end", "t̄", "what all resemble"));

drawing.setAttribute("aria-label", "Triangle of α and β");
const share = h("strong", { class: "share" });
const right = h("span", {});
const accuracy = h("div", { class: "accuracy", "data-test": "accuracy" }, share, right);
const mixUps = button("button small", "confusion", openConfusion, "Mix-ups …");
mixUps.hidden = true;
mixUps.title = "Which classes are taken for which";
accuracy.title = "Leave-one-out accuracy";
const auto = button("button small toggle", "auto", goAuto, "Auto");
auto.disabled = true;
auto.title = "Let the software choose α and β";
const field = (name, sign) => h("input",
  { type: "number", min: 0, max: 1, step: STEP, id: name, disabled: true, "data-test": name, "aria-label": sign });
const fields = { alpha: field("alpha", "α"), beta: field("beta", "β") };
const sentence = h("p", { class: "quiet", "data-test": "pull-sentence" });
const changes = h("p", { class: "quiet changes" });
const wrong = h("div", { class: "wrong" });

function reasonToBeOff(view) {
  if (!state.project.n_base_classes) return "Without base classes nothing pulls: the service was started with no priors.";
  return view.ready ? null : view.hint;
}

async function goAuto() {
  await keep();
  if (state.project.point !== null) act(clearPoint);
}

/** The point in force; there is none before there are labels. */
function shownPoint() {
  const { alpha, beta } = state.preview ?? shownView();
  return { alpha: alpha ?? 0, beta: beta ?? 0 };
}

export function showTriangle() {
  const view = shownView();
  if (!view) return;
  const { alpha, beta } = shownPoint();
  const reason = reasonToBeOff(view);

  const [x, y] = placeOf({ alpha, beta });
  handle.setAttribute("transform", `translate(${[x, y]})`);
  Object.values(CORNERS).forEach(([x2, y2], i) => set(ways[i], { x1: x, y1: y, x2, y2 }));
  if (view.auto_point) ring.setAttribute("transform", `translate(${placeOf(view.auto_point)})`);
  ring.toggleAttribute("hidden", !view.auto_point);
  set(handle, {
    "aria-valuenow": hundredths(alpha + beta),
    "aria-valuetext": `α ${decimal(alpha)}, β ${decimal(beta)}`,
    "aria-disabled": String(Boolean(reason)),
    tabindex: reason ? -1 : 0,
  });
  find("pull").classList.toggle("off", Boolean(reason));
  for (const [name, value] of Object.entries({ alpha, beta })) {
    fields[name].disabled = Boolean(reason);
    if (document.activeElement !== fields[name] || !state.preview) fields[name].value = value.toFixed(2);
  }
  auto.disabled = Boolean(reason);
  set(auto, { "aria-pressed": String(!state.preview && state.project.point === null) });
  sentence.textContent = reason ?? inWords(alpha, beta);
  showAccuracy();
  changes.textContent = reason ? "" : changesInWords(view);
}

function inWords(alpha, beta) {
  if (alpha + beta === 0) return "Each example stands for itself and leans on nothing else.";
  const [itself, sample, task] = [1 - alpha - beta, alpha, beta].map(percent);
  return `Each example is ${itself} itself (x̄). It leans ${sample} on base classes that it resembles (s̄, α) ` +
    `and ${task} on those that all examples together resemble (t̄, β).`;
}

function changesInWords(view) {
  const moved = sinceMove();
  if (moved) return `${labelsSince(moved, view)}${accuracySince(moved)}.`;
  if (view.relevance === null || state.project.point !== null) return "";
  const drawn = state.project.priors === "drawn birds";
  const base = drawn ? `The base classes, ${state.project.n_base_classes} other drawn birds,` : "Base classes";
  if (view.relevance <= 0) return `${base} do not fit these photos, so they are not used.`;
  const invitation = drawn ? " Drag the point to x̄ to see the labels without them." : "";
  return `${base} fit these photos to ${decimal(view.relevance)} of 1.${invitation}`;
}

function labelsSince({ view: { labels: old } }, { labels }) {
  const before = new Map(old.map(({ id, label }) => [id, label]));
  const other = labels.filter(({ id, label }) => before.has(id) && before.get(id) !== label);
  const names = other.map(({ id, label }) => `${photoOf(id)?.name} from ${before.get(id)} to ${label}`);
  const named = names.length && names.length <= MOST_NAMED ? `: ${names.join(", ")}` : "";
  return `${count(other.length, "label")} changed by moving the point${named}`;
}

let begun = null;

/** What was shown before the point was moved: until it rests, and then until something else changes. */
function sinceMove() {
  if (state.preview) begun = begun?.moving ? begun : { view: state.view, accuracy: state.accuracy, moving: true };
  else if (begun?.moving) Object.assign(begun, { moving: false, revision: state.project.revision });
  else if (begun && begun.revision !== state.project.revision) begun = null;
  return begun;
}

function accuracySince({ accuracy: before }) {
  const now = shownAccuracy();
  if (before?.accuracy == null || now?.accuracy == null) return "";
  if (before.right === now.right) return `; leave-one-out accuracy stays ${percent(now.accuracy)}`;
  return `; leave-one-out accuracy from ${percent(before.accuracy)} to ${percent(now.accuracy)}`;
}

function accuracyInWords({ right: n, asked, of }) {
  return asked < of ? `${n} of ${asked} tried, of ${of} taught` : `${n} of ${asked} right, each labelled by the others`;
}

function showAccuracy() {
  const found = shownAccuracy();
  const known = found && found.accuracy !== null;
  share.textContent = known ? percent(found.accuracy) : "–";
  const hint = state.view.ready ? found?.hint : null;
  right.textContent = known ? accuracyInWords(found) : (hint ?? "");
  mixUps.hidden = !known || !found.confusion;
  const photos = (found?.wrong ?? []).map(photoOf).filter(Boolean).slice(0, 6);
  const drawn = JSON.stringify(photos);
  if (drawn === wrongDrawn) return;
  wrongDrawn = drawn;
  wrong.hidden = !photos.length;
  wrong.replaceChildren(h("span", { class: "quiet" }, "Wrong when left out"), ...photos.map(small));
}

let wrongDrawn = null;

function small({ id, name }) {
  const node = button("tile-open", "wrong-photo", () => openWhy(id), h("img", { src: thumbnail(id), alt: "" }));
  return set(node, { "data-photo": id, title: name, "aria-label": `${name}: what pulled it?` });
}

function placeUnder(event) {
  const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(drawing.getScreenCTM().inverse());
  return [x, y];
}

/** The point with α + β = `sum` and α and β in the same proportion. */
function leaning(sum, alpha, beta) {
  const share = alpha + beta > 0 ? alpha / (alpha + beta) : 0.5;
  const all = Math.min(1, Math.max(0, sum));
  return pointAt(placeOf({ alpha: share * all, beta: (1 - share) * all }));
}

const isOff = () => find("pull").classList.contains("off");
function listenToPointer() {
  let held = null;
  drawing.addEventListener("pointerdown", (event) => {
    if (isOff() || event.button) return;
    event.preventDefault();
    handle.focus({ preventScroll: true });
    held = event.pointerId;
    drawing.setPointerCapture(held);
    move(pointAt(placeUnder(event)));
  });
  drawing.addEventListener("pointermove", (event) => {
    if (event.pointerId === held) move(pointAt(placeUnder(event)));
  });
  for (const kind of ["pointerup", "pointercancel"]) {
    drawing.addEventListener(kind, (event) => {
      if (event.pointerId !== held) return;
      held = null;
      keep();
    });
  }
}

function listenToKeys() {
  const height = CORNERS.sample[1] - CORNERS.itself[1];
  handle.addEventListener("keydown", (event) => {
    if (isOff()) return;
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const { alpha, beta } = shownPoint();
    const sums = { Home: 0, End: 1, PageUp: alpha + beta - PAGE, PageDown: alpha + beta + PAGE };
    const [x, y] = placeOf({ alpha, beta });
    const far = height * (event.shiftKey ? STEP / 5 : STEP);
    if (way) move(pointAt([x + far * way[0], y + far * way[1]]));
    else if (event.key in sums) move(leaning(sums[event.key], alpha, beta));
    else return;
    event.preventDefault();
    keepSoon();
  });
  for (const [name, other] of [["alpha", "beta"], ["beta", "alpha"]]) {
    fields[name].addEventListener("input", () => {
      const value = hundredths(Math.min(1, Math.max(0, fields[name].valueAsNumber)));
      if (Number.isNaN(value)) return;
      move({ [name]: value, [other]: Math.min(hundredths(shownPoint()[other]), hundredths(1 - value)) });
      keepSoon();
    });
  }
}

export function listenInTriangle() {
  find("pull").append(
    h("h3", {}, "How much each example leans on what it resembles"),
    h("div", { class: "pull-top" }, accuracy, auto, drawing),
    h("div", { class: "row point-row" }, h("label", {}, "α", fields.alpha), h("label", {}, "β", fields.beta)),
    sentence, changes, h("div", { class: "row" }, wrong, mixUps));
  handle.setAttribute("transform", `translate(${CORNERS.itself})`);
  find("pull").classList.add("off"); // until there is a view to begin from
  listenToPointer();
  listenToKeys();
}
