/** The bar that shows photos on their way: how many have arrived, what comes next, and a way to stop. */

import { count, find, h, keyed } from "./dom.js";
import { showNotice } from "./notices.js";
import { pictureOf } from "./pictures.js";
import { state } from "./store.js";
import { cancel, counts } from "./uploads.js";

const NEXT = 3;
const SEEN = 2000; // milliseconds; large photos that change with each answer would slow down what they show

const makeNext = (photo) => ({
  node: h("li", {}, pictureOf(photo.file, { title: photo.name })),
  update: () => {},
});

let next = [];
let since = -Infinity;

/** The first of the photos that wait, each seen for a while. */
function nextPhotos() {
  const now = performance.now();
  if (now - since > SEEN) {
    next = state.uploads.slice(0, NEXT).map((photo) => ({ ...photo, id: photo.key }));
    since = now;
  }
  return next;
}

export function showSending() {
  const waiting = state.uploads.length;
  find("sending").hidden = !waiting;
  if (!waiting) {
    since = -Infinity;
    return;
  }
  const { total, sent, failed } = counts();
  const refused = failed ? ` ${count(failed, "file")} could not be added.` : "";
  const outage = state.reachable ? "" : " The rest waits until the service answers. Nothing is lost, even if you leave this page.";
  find("sent").textContent = `${sent.toLocaleString("en")} of ${count(total, "photo")} sent.${refused}${outage}`;
  find("sent-bar").max = total;
  find("sent-bar").value = sent + failed;
  keyed(find("next"), nextPhotos(), makeNext);
}

export function listenForCancel() {
  find("cancel").addEventListener("click", async () => {
    find("main").focus({ preventScroll: true }); // the button goes
    const left = await cancel();
    if (left) showNotice(`Cancelled. ${count(left, "photo")} left out; those that were sent are kept.`);
  });
}
