/** Opening a session where the service was started with a token. */

import { find, h } from "./dom.js";
import { openSession, Refused } from "./service.js";

/** The token of the address, "#token=…", which is then taken out of it. */
function tokenOfAddress() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) history.replaceState(null, "", location.pathname);
  return token;
}

function ask(complaint) {
  const dialog = find("token");
  const field = h("input", { id: "token-field", type: "password", autocomplete: "off", required: true });
  field.dataset.test = "token-field";
  return new Promise((take) => {
    const send = (event) => {
      event.preventDefault();
      dialog.close();
      take(field.value);
    };
    dialog.replaceChildren(h("form", { onsubmit: send },
      h("h2", { id: "token-title" }, "A token, please"),
      h("p", {}, complaint ?? "This service was started with a token. Whoever started it knows it."),
      h("label", { for: "token-field" }, "Token"), field,
      h("button", { class: "button primary" }, "Go on")));
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.showModal();
  });
}

let opening = null;

/** Open a session with the token of the address or of the user; resolves when it is open. */
export function authorise() {
  opening ??= (async () => {
    let complaint = null;
    for (let token = tokenOfAddress(); ; token = null) {
      try {
        return await openSession(token ?? (await ask(complaint)));
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        complaint = error.message;
      }
    }
  })().finally(() => { opening = null; });
  return opening;
}
