/** Part 3, the triangle of the paper: a point inside x̄, s̄, t̄ sets α and β. */

import { CORNERS, hundredths, placeOf, pointAt } from "./corners.js";
import { button, count, decimal, find, h, percent, s, set } from "./dom.js";
import { keep, keepSoon, move } from "./moving.js";
import { clearPoint, thumbnail } from "./service.js";
import { act, shownAccuracy, shownView, state } from "./store.js";
import { openWhy } from "./why.js";

const STEP = 0.05;

const corner = ([x, y], anchor, sign, words) => s("text", { x, y, "text-anchor": anchor, class: "corner" },
  s("tspan", { class: "sign" }, sign),
  s("tspan", { dx: 6 }, words));

const ring = s("circle", { class: "auto-ring", r: 13, hidden: true });
const handle = s("g", { class: "handle", role: "slider", tabindex: -1, "aria-valuemin": 0, "aria-valuemax": 1 },
  s("circle", { class: "halo", r: 20 }), s("circle", { class: "knob", r: 9 }));
handle.dataset.test = "triangle-handle";
handle.setAttribute("aria-label", "Pull of base classes. Left is more α, right more β, up less of both, down more");
const ways = Object.values(CORNERS).map(() => s("line", { class: "way" }));
const drawing = s("svg", { class: "triangle", role: "group", viewBox: "0 0 300 270", "data-test": "triangle" },
  s("path", { class: "area", d: `M${CORNERS.itself}L${CORNERS.sample}L${CORNERS.task}Z` }),
  ...ways, ring, handle,
  corner([150, 20], "middle", "x̄", "itself"),
  corner([6, 262], "start", "s̄", "like the photo"),
  corner([294, 262], "end", "t̄", "like the task"));

drawing.setAttribute("aria-label", "Triangle of α and β");
const share = h("strong", { class: "share" });
const right = h("span", {});
const accuracy = h("div", { class: "accuracy", "data-test": "accuracy" }, share, right);
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
  handle.setAttribute("aria-valuenow", hundredths(alpha + beta));
  handle.setAttribute("aria-valuetext", `α ${decimal(alpha)}, β ${decimal(beta)}`);
  handle.setAttribute("tabindex", reason ? -1 : 0);
  handle.setAttribute("aria-disabled", Boolean(reason));
  find("pull").classList.toggle("off", Boolean(reason));
  for (const [name, value] of Object.entries({ alpha, beta })) {
    fields[name].disabled = Boolean(reason);
    if (document.activeElement !== fields[name] || !state.preview) fields[name].value = value.toFixed(2);
  }
  auto.disabled = Boolean(reason);
  auto.setAttribute("aria-pressed", !state.preview && state.project.point === null);
  sentence.textContent = reason ?? inWords(alpha, beta);
  showAccuracy();
  changes.textContent = reason ? "" : changesInWords(view);
}

function inWords(alpha, beta) {
  if (alpha + beta === 0) return "Each photo stands for itself; base classes do not pull.";
  const [itself, sample, task] = [1 - alpha - beta, alpha, beta].map(percent);
  return `Each photo keeps ${itself} of itself. ${sample} comes from base classes like the photo (α), ` +
    `${task} from base classes like the whole task (β).`;
}

function changesInWords(view) {
  if (state.preview) {
    const before = new Map(state.view.labels.map(({ id, label }) => [id, label]));
    const other = view.labels.filter(({ id, label }) => before.get(id) !== label);
    return `${count(other.length, "label")} changed by moving the point.`;
  }
  if (view.relevance === null || state.project.point !== null) return "";
  if (view.relevance > 0) return `Base classes fit these photos to ${decimal(view.relevance)} of 1.`;
  return "Base classes do not fit these photos, so they are not used.";
}

function showAccuracy() {
  const found = shownAccuracy();
  const known = found && found.accuracy !== null;
  share.textContent = known ? percent(found.accuracy) : "–";
  const hint = state.view.ready ? found?.hint : null;
  right.textContent = known ? `${found.right} of ${found.asked} right, each labelled by the others` : (hint ?? "");
  const photos = state.project.photos.filter(({ id }) => found?.wrong.includes(id)).slice(0, 6);
  wrong.hidden = !photos.length;
  wrong.replaceChildren(h("span", { class: "quiet" }, "Wrong when left out"), ...photos.map(small));
}

function small({ id, name }) {
  const node = button("tile-open", "wrong-photo", () => openWhy(id), h("img", { src: thumbnail(id), alt: "" }));
  return set(node, { "data-photo": id, title: name, "aria-label": `${name}: what pulled it?` });
}

function placeUnder(event) {
  const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(drawing.getScreenCTM().inverse());
  return [x, y];
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
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!way || isOff()) return;
    event.preventDefault();
    const [x, y] = placeOf(shownPoint());
    const far = height * (event.shiftKey ? STEP / 5 : STEP);
    move(pointAt([x + far * way[0], y + far * way[1]]));
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
    h("h3", { class: "unseen" }, "How strongly base classes pull"),
    accuracy, auto, drawing,
    h("div", { class: "row point-row" }, h("label", {}, "α", fields.alpha), h("label", {}, "β", fields.beta)),
    sentence, changes, wrong);
  handle.setAttribute("transform", `translate(${CORNERS.itself})`);
  find("pull").classList.add("off"); // until there is a view to begin from
  listenToPointer();
  listenToKeys();
}
