/** A name that is edited where it stands. */

import { h } from "./dom.js";
import { state } from "./store.js";

/** An input that looks like text: Enter and leaving it keep the new name, Escape the old. */
export function editableName(attributes, rename) {
  let kept = "";
  const { name: longest } = state.project.limits;
  const input = h("input", { class: "name", autocomplete: "off", spellcheck: "false", maxlength: longest, ...attributes });
  const finish = async () => {
    const name = input.value.trim();
    if (name && name !== kept && !(await rename(name))) input.value = kept;
    else if (!name) input.value = kept;
  };
  input.addEventListener("change", finish);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      input.value = kept;
    }
    if (event.key === "Enter" || event.key === "Escape") input.blur();
  });
  const show = (name) => {
    kept = name;
    if (document.activeElement !== input) input.value = name;
  };
  return { input, show };
}
