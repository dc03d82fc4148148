/** Questions in a dialog. */

import { button, find, h } from "./dom.js";

/** Show what `make(take)` makes; resolves to what is taken, or to null where the dialog is closed without an answer. */
function show(make) {
  const dialog = find("question");
  return new Promise((resolve) => {
    let answer = null;
    const take = (value) => {
      answer = value;
      dialog.close();
    };
    dialog.replaceChildren(make(take));
    dialog.onclose = () => resolve(answer);
    dialog.showModal();
  });
}

const heading = (title) => h("h2", { id: "question-title" }, title);

/** Ask a question with answers `{text, value}`, the likeliest first; resolves to the value of the one chosen. */
export function ask(title, sentences, answers) {
  const look = (place) => (place ? "button" : "button primary");
  return show((take) => h("div", {},
    heading(title),
    ...sentences.map((sentence) => h("p", {}, sentence)),
    h("div", { class: "row" },
      ...answers.map(({ text, value }, place) => button(look(place), "answer", () => take(value), text)))));
}

/** Ask for a name; `answer` is the text of the button. */
export function askName(title, label, answer) {
  const field = h("input", { id: "question-field", "data-test": "question-field", autocomplete: "off", required: true, maxlength: 100 });
  const send = (take) => (event) => {
    event.preventDefault();
    if (field.value.trim()) take(field.value.trim());
  };
  return show((take) => h("form", { onsubmit: send(take) },
    heading(title),
    h("label", { for: "question-field" }, label), field,
    h("div", { class: "row" }, h("button", { class: "button primary" }, answer))));
}
