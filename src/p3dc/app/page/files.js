/** Saving to and opening from the user's disk. */

import { find, h } from "./dom.js";
import { showNotice } from "./notices.js";
import { getModel, putModel } from "./service.js";
import { act, report } from "./store.js";

/** Save what `get` brings under a name. */
export async function saveAs(name, get) {
  try {
    const address = URL.createObjectURL(await get());
    h("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  } catch (error) {
    report(error);
  }
}

export function listenForFiles() {
  find("save-model").addEventListener("click", () => saveAs("p3dc-model.safetensors", getModel));
  find("load-model").addEventListener("change", async ({ target }) => {
    const [file] = target.files;
    if (file && (await act(() => putModel(file)))) showNotice(`${file.name} is open.`);
    target.value = "";
  });
}
