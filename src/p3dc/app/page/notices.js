/** Messages that come and go: toasts for people who see, announcements for people who listen. */

import { button, count, find, h, icon } from "./dom.js";

const ENOUGH = 8000;

function toast(attributes, body, { action, stays }) {
  const node = h("div", { class: "toast", "data-test": "toast", ...attributes }, body);
  const close = () => {
    node.remove();
    if (!find("toasts").childElementCount) find("toasts").hidePopover();
  };
  if (action) {
    const run = () => {
      close();
      action.run();
    };
    node.append(button("button small", "toast-action", run, action.text));
  }
  node.append(h("button", { class: "tool", "aria-label": "Close this message", onclick: close }, icon("close")));
  toTop();
  find("toasts").append(node);
  if (!stays) setTimeout(close, ENOUGH);
  return node;
}

/** Above whatever dialog has opened since. */
function toTop() {
  if (find("toasts").matches(":popover-open")) find("toasts").hidePopover();
  find("toasts").showPopover();
}

/** A sentence that goes by itself, or when the next one comes, with something to do about it. */
export function showNotice(sentence, action = null) {
  find("toasts").querySelector('[role="status"]')?.remove();
  toast({ role: "status" }, h("p", {}, sentence), { action, stays: false });
}

/** A sentence that stays until closed, with the files it is about. */
export function showFailure(sentence, failures = []) {
  const lines = h("ul", { hidden: !failures.length }, ...failures.map(line));
  return toast({ role: "alert", class: "toast failure" }, h("div", {}, h("p", {}, sentence), lines), { stays: true });
}

const line = ({ name, message }) => h("li", {}, message.includes(name) ? message : `${name}: ${message}`);

let failed = null;

/** Files that could not be added: one message for all, until it is closed. */
export function showFailures(failures) {
  if (!failures.length) return;
  if (!failed?.isConnected) failed = showFailure("", []);
  const list = failed.querySelector("ul");
  list.append(...failures.map(line));
  list.hidden = false;
  failed.querySelector("p").textContent = `${count(list.childElementCount, "file")} could not be added.`;
}

/** Announce a sentence to screen readers only. */
export function announce(sentence) {
  find("announce").textContent = sentence;
}
