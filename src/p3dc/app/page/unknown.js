/** The threshold of "unknown": a slider, and what it would turn away of the photos at hand. */

import { button, count, decimal, find, h, set } from "./dom.js";
import { setUnknownBelow } from "./service.js";
import { act, shownView, state } from "./store.js";

const STEPS = 200;

const slider = h("input", { type: "range", id: "unknown-below", "data-test": "unknown-below" });
const auto = set(button("button small toggle", "unknown-auto", () => keep(null), "Auto"), { title: "Let the software choose" });
const words = h("p", { class: "quiet", "data-test": "unknown-words" });
let held = null;

/** Where the slider begins and ends: around the typicalities of all photos. */
function range(values, ...thresholds) {
  const all = [...values, ...thresholds.filter((value) => value !== null)];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const margin = 0.05 * Math.max(high - low, 0.1);
  return { low: low - margin, high: high + margin };
}

async function keep(below) {
  await act(() => setUnknownBelow(below));
  held = null;
  showUnknown();
}

function inWords(labels, threshold, inForce) {
  const below = (value) => labels.filter(({ typicality }) => typicality < value).length;
  const [now, then] = [below(inForce), below(threshold)];
  const what = `${then} of ${count(labels.length, "photo")}`;
  if (held === null) return `Below ${decimal(threshold)}, photos are like none of your classes: ${what}.`;
  const change = then === now ? "as many as now" : `${Math.abs(then - now)} ${then > now ? "more" : "fewer"} than now`;
  return `Below ${decimal(threshold)}: ${what} would be unknown, ${change}.`;
}

export function showUnknown() {
  const view = shownView();
  const labels = (view?.labels ?? []).filter(({ typicality }) => typeof typicality === "number");
  const known = typeof view?.unknown_below === "number" && labels.length > 0;
  find("unknown").hidden = !known;
  if (!known) return;
  const threshold = held ?? view.unknown_below;
  if (held === null) {
    const { low, high } = range(labels.map(({ typicality }) => typicality), view.unknown_below, view.unknown_chosen ?? null);
    set(slider, { min: low, max: high, step: (high - low) / STEPS });
    slider.value = threshold;
  }
  slider.setAttribute("aria-valuetext", decimal(threshold));
  auto.setAttribute("aria-pressed", String(held === null && (state.project.unknown_below ?? null) === null));
  words.textContent = inWords(labels, threshold, view.unknown_below);
}

export function listenForUnknown() {
  find("unknown").append(
    h("div", { class: "row unknown-head" }, h("h3", {}, h("label", { for: "unknown-below" }, "When is a photo unknown?")), auto),
    slider, words);
  slider.addEventListener("input", () => {
    held = slider.valueAsNumber;
    showUnknown();
  });
  slider.addEventListener("change", () => keep(slider.valueAsNumber));
}
