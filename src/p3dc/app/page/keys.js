/** The dialog that lists the keys. */

import { button, find, h, icon, set } from "./dom.js";

const KEYS = [
  ["In the results", [
    [["↑", "↓", "←", "→"], "go from photo to photo"],
    [["Space"], "select, or no longer"],
    [["Shift", "→"], "select up to the next"],
    [["Ctrl", "A"], "select all that are shown"],
    [["1", "…", "9"], "say that it is of this class"],
    [["Enter"], "accept the label"],
    [["T"], "This is …: any class, or a new one"],
    [["U"], "take back what was said"],
    [["W"], "see it large, and why it has its label"],
    [["Delete"], "delete"],
    [["Esc"], "select none"],
  ]],
  ["Everywhere", [
    [["Ctrl", "Z"], "undo"],
    [["Ctrl", "Shift", "Z"], "redo"],
    [["?"], "this list"],
  ]],
];

export function openKeys() {
  const dialog = find("keys");
  const close = set(button("tool", "keys-close", () => dialog.close(), icon("close")), { "aria-label": "Close" });
  const lines = ([title, rows]) => [
    h("h3", {}, title),
    h("dl", {}, ...rows.flatMap(([keys, words]) => [h("dt", {}, ...keys.map((key) => h("kbd", {}, key))), h("dd", {}, words)])),
  ];
  dialog.replaceChildren(
    h("header", { class: "dialog-head" }, h("h2", { id: "keys-title" }, "Keys"), close),
    h("div", { class: "keys-body" }, ...KEYS.flatMap(lines)));
  dialog.showModal();
}

export function listenForHelp() {
  find("keys-open").addEventListener("click", openKeys);
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches?.("input:not([type=file]), select, textarea");
    if (event.key !== "?" || typing || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    openKeys();
  });
}
