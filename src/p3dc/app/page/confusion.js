/** The dialog that shows which classes are taken for which when each example is labelled by the others. */

import { button, count, find, h, icon, set } from "./dom.js";
import { classOf, lookOf } from "./lookup.js";
import { shownAccuracy } from "./store.js";

const PAIRS = 5;

/** Pairs of classes by how often the first is taken for the second, most often first. */
function pairs({ classes, counts }) {
  const all = classes.flatMap((of, i) => classes.map((as, j) => ({ of, as, n: i === j ? 0 : counts[i][j], from: sum(counts[i]) })));
  return all.filter(({ n }) => n > 0).sort((a, b) => b.n - a.n || b.n / b.from - a.n / a.from);
}

const sum = (numbers) => numbers.reduce((total, n) => total + n, 0);
const named = (id) => h("span", { class: "named" }, h("span", { class: `swatch ${lookOf(id)}`, "aria-hidden": "true" }), classOf(id)?.name ?? "?");

function worst(found) {
  const all = pairs(found);
  if (!all.length) return [h("p", {}, "No example is taken for another class.")];
  const lines = all.slice(0, PAIRS).map(({ of, as, n, from }) =>
    h("li", {}, named(of), ` taken for `, named(as), ` ${n} of ${from} times`));
  const more = all.length > PAIRS ? [h("p", { class: "quiet" }, `and ${count(all.length - PAIRS, "pair")} more.`)] : [];
  return [h("ul", { class: "mixed", "data-test": "mixed-up" }, ...lines), ...more];
}

function table({ classes, counts }) {
  const head = h("tr", {}, h("td", {}), ...classes.map((id) =>
    h("th", { scope: "col", title: classOf(id)?.name }, h("span", { class: "down" }, named(id)))));
  const rows = classes.map((of, i) => h("tr", {}, h("th", { scope: "row" }, named(of)), ...counts[i].map((n, j) => {
    const cell = h("td", { class: i === j ? "cell right" : "cell" }, n ? String(n) : "");
    cell.style.setProperty("--share", n / Math.max(1, sum(counts[i])));
    return cell;
  })));
  return h("div", { class: "matrix", tabindex: 0, role: "group", "aria-label": "Table of mix-ups" },
    h("table", { "data-test": "confusion-table" }, h("thead", {}, head), h("tbody", {}, ...rows)));
}

export function openConfusion() {
  const { confusion: found, asked, of } = shownAccuracy();
  const dialog = find("confusion");
  const close = set(button("tool", "confusion-close", () => dialog.close(), icon("close")), { "aria-label": "Close" });
  const sample = asked < of ? `${asked} of ${of} examples were tried.` : `All ${of} examples were tried.`;
  dialog.replaceChildren(
    h("header", { class: "dialog-head" }, h("h2", { id: "confusion-title" }, "What is taken for what"), close),
    h("div", { class: "confusion-body" },
      h("p", { class: "quiet" }, `Each example is labelled by all the others. ${sample} Rows are what you said, columns the labels.`),
      ...worst(found), table(found)));
  dialog.showModal();
}
