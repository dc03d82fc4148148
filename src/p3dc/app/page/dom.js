/** Making and keeping elements. Text always goes in as text, never as markup. */

const SVG = "http://www.w3.org/2000/svg";

/** Set attributes: `onclick: f` listens, `null` and `false` remove, `true` sets an empty one. */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else setIfOther(element, name, value === true ? "" : String(value));
  }
  return element;
}

/** An attribute that is set again, even to the same value, costs a new layout. */
function setIfOther(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** An HTML element: `h("button", {class: "small", onclick: close}, icon("close"), "Close")`. */
export function h(tag, attributes = {}, ...children) {
  const element = set(document.createElement(tag), attributes);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A button: its classes, its name for tests, what it does, what is in it. */
export const button = (look, test, onclick, ...children) =>
  h("button", { class: look, "data-test": test, onclick }, ...children);

/** The same as `h` for SVG. */
export function s(tag, attributes = {}, ...children) {
  const element = set(document.createElementNS(SVG, tag), attributes);
  element.append(...children);
  return element;
}

/** One of the symbols at the end of index.html. */
export function icon(name) {
  return s("svg", { class: "icon", "aria-hidden": "true" }, s("use", { href: `#i-${name}` }));
}

export const find = (id) => document.getElementById(id);

const kept = new WeakMap();

/**
 * Show `items`, each with an `id`, as the children of `parent`, in order, and keep what is already there.
 * `make(item)` returns `{node, update}`; `update(item)` is called each time.
 */
export function keyed(parent, items, make) {
  const before = kept.get(parent) ?? new Map();
  const after = new Map(items.map((item) => [item.id, before.get(item.id) ?? make(item)]));
  kept.set(parent, after);
  for (const [id, { node }] of before) if (!after.has(id)) removeKeepingFocus(node);
  let place = parent.firstElementChild;
  for (const item of items) {
    const { node, update } = after.get(item.id);
    update(item);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
}

function removeKeepingFocus(node) {
  if (node.contains(document.activeElement)) {
    const neighbour = node.nextElementSibling ?? node.previousElementSibling ?? node.parentElement.parentElement;
    neighbour?.querySelector("button")?.focus({ preventScroll: true }); // in a field the keys of undo would be its own
  }
  node.remove();
}

/** 0.934 → "93 %", 0.001 → "< 1 %", 0.999 → "> 99 %". */
export function percent(share) {
  if (share > 0 && share < 0.005) return "< 1 %";
  if (share < 1 && share > 0.995) return "> 99 %";
  return `${Math.round(100 * share)} %`;
}

/** The same within a sentence. */
export const percentInWords = (share) =>
  percent(share).replace("<", "less than").replace(">", "more than").replace(" %", "\u00a0%");

/** −0.104 → "−0.10". */
export const decimal = (value) => value.toFixed(2).replace("-", "−");

/** 1 → "1 photo", 3 → "3 photos". */
export const count = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
