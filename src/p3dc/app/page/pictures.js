/** Pictures of photos that wait to be sent; thumbnails that could not be loaded are loaded again. */

import { h } from "./dom.js";
import { refresh, report, state, watch } from "./store.js";

const TRIES = 3;
const PAUSE = 1000;
const tries = new WeakMap();
const broken = new Set();

/** A picture of a file, with other attributes. Its address is given up once it is loaded. */
export function pictureOf(file, attributes = {}) {
  const address = URL.createObjectURL(file);
  const giveUp = () => URL.revokeObjectURL(address);
  return h("img", { alt: "", decoding: "async", ...attributes, onload: giveUp, onerror: giveUp, src: address });
}

function load() {
  if (!state.reachable) return;
  for (const image of broken) if (image.isConnected) image.src = image.getAttribute("src");
  broken.clear();
}

export function listenForPictures() {
  document.addEventListener("error", ({ target }) => {
    if (!(target instanceof HTMLImageElement) || !target.getAttribute("src").startsWith("/v1/")) return;
    const attempt = (tries.get(target) ?? 0) + 1;
    tries.set(target, attempt);
    if (attempt > TRIES) return;
    broken.add(target);
    setTimeout(() => refresh().then(load, report), PAUSE); // an outage may not have been noticed yet
  }, true); // these events do not bubble
  document.addEventListener("load", ({ target }) => tries.delete(target), true);
  let reachable = true;
  watch(() => {
    if (state.reachable && !reachable) load();
    reachable = state.reachable;
  });
}
