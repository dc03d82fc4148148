/** The camera: labels while it looks, and photos for a class or to be labelled. */

import { button, count, find, h, icon, percent, set } from "./dom.js";
import { lookNamed } from "./lookup.js";
import { classify, Refused, Unreachable } from "./service.js";
import { state } from "./store.js";
import { upload } from "./uploads.js";

const REASONS = {
  insecure: "Browsers lend the camera only to pages of this machine or over HTTPS. Add photos from files instead.",
  NotAllowedError: "The browser may not use the camera. Allow it in the settings of this page, then try again.",
  NotFoundError: "There is no camera here. Add photos from files instead.",
  NotReadableError: "Another program is using the camera. Close it, then try again.",
};
/** The shorter side of what is looked at, in pixels: more than any backbone sees. */
const SIDE = 256;
/** Milliseconds between two labels, and between two photos of a recording. */
const REST = 120;
const BEAT = 250;
const MOST = 100;

/** Open the camera for a class, or for photos to be labelled where `classId` is null. */
export async function openCamera(classId) {
  const dialog = find("camera");
  const video = h("video", { autoplay: true, playsinline: true, muted: true });
  const message = h("p", { class: "camera-message", role: "status" }, "Starting the camera …");
  const live = h("ul", { class: "bars live", "data-test": "live", "aria-label": "What it sees" });
  const goal = h("select", { id: "camera-goal", "data-test": "camera-goal" },
    h("option", { value: "" }, "Photos to be labelled"),
    ...state.project.classes.map(({ id, name }) => h("option", { value: id }, name)));
  goal.value = classId ?? "";
  let taken = 0;
  const send = (photos) => {
    taken += photos.length;
    message.textContent = `${taken} taken`;
    upload(goal.value || null, photos);
  };
  const take = button("button primary", "take-photo", async () => send([await still(video)]), icon("camera"), "Take photo");
  const record = set(button("button", "record", () => {}, "Hold to record"), { title: "Four photos a second, while it is held" });
  for (const each of [take, record]) each.disabled = true;
  recordWhileHeld(record, video, (n) => { message.textContent = `Recording: ${count(n, "photo")}`; }, send);
  const close = set(button("tool", "camera-close", () => dialog.close(), icon("close")), { "aria-label": "Close" });
  dialog.replaceChildren(
    h("header", { class: "dialog-head" }, h("h2", { id: "camera-title" }, "Camera"), close),
    h("div", { class: "camera-frame" }, video, message), live,
    h("div", { class: "camera-row" },
      h("label", { class: "camera-goal" }, h("span", {}, "Add to"), goal), h("div", { class: "row" }, record, take)));
  dialog.showModal();

  const stream = await start(message);
  if (!stream) return;
  const stop = () => stream.getTracks().forEach((track) => track.stop());
  if (!dialog.open || !video.isConnected) return stop();
  dialog.addEventListener("close", stop, { once: true });
  video.srcObject = stream;
  message.textContent = "";
  for (const each of [take, record]) each.disabled = false;
  look(video, live);
}

/** The camera's stream, or null and a sentence that says why not. */
async function start(message) {
  if (!navigator.mediaDevices) {
    message.textContent = REASONS.insecure;
    return null;
  }
  try {
    return await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch (error) {
    message.textContent = REASONS[error.name] ?? "The camera could not be started. Add photos from files instead.";
    return null;
  }
}

/** Label what the camera sees, one picture at a time, for as long as the dialog is open. */
async function look(video, live) {
  const open = () => find("camera").open && video.isConnected;
  while (open()) {
    if (state.view?.ready && video.videoWidth && !document.hidden) {
      try {
        const { predictions } = await classify(await still(video, SIDE));
        if (open()) showLive(live, predictions[0]);
      } catch (error) {
        if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
        live.replaceChildren();
      }
    }
    await new Promise((done) => setTimeout(done, REST));
  }
}

function showLive(live, found) {
  const second = { label: found.runner_up, share: found.runner_up_probability };
  const rows = found.unknown
    ? [{ label: "unknown", share: null }, second]
    : [{ label: found.label, share: found.probability }, second];
  live.replaceChildren(...rows.filter(({ label }) => label).map(({ label, share }) => {
    const fill = h("span", { class: `fill ${lookNamed(label)}` });
    fill.style.width = `${100 * (share ?? 0)}%`;
    return h("li", {}, h("span", { class: "bar-name" }, label),
      h("span", { class: "bar-track", "aria-hidden": "true" }, fill), h("span", { class: "bar-value" }, share === null ? "" : percent(share)));
  }));
}

/** Take photos as long as a button is held, by pointer or by key, and send them as one drop. */
function recordWhileHeld(node, video, tell, send) {
  let photos = null;
  const begin = async () => {
    if (photos || node.disabled) return;
    const mine = [];
    photos = mine;
    node.setAttribute("aria-pressed", "true");
    while (photos === mine && mine.length < MOST && video.isConnected && find("camera").open) {
      mine.push(await still(video));
      tell(mine.length);
      await new Promise((done) => setTimeout(done, BEAT));
    }
  };
  const end = () => {
    if (photos?.length) send(photos);
    photos = null;
    node.removeAttribute("aria-pressed");
  };
  node.addEventListener("pointerdown", (event) => {
    node.setPointerCapture(event.pointerId);
    begin();
  });
  for (const kind of ["pointerup", "pointercancel", "blur"]) node.addEventListener(kind, end);
  node.addEventListener("contextmenu", (event) => event.preventDefault());
  node.addEventListener("keydown", (event) => {
    if (event.key !== " " && event.key !== "Enter") return;
    event.preventDefault();
    begin();
  });
  node.addEventListener("keyup", end);
}

let number = 0;

/** What the camera sees as a file, with a shorter side of `side` pixels if given. */
async function still(video, side = null) {
  const scale = side ? Math.min(1, side / Math.min(video.videoWidth, video.videoHeight)) : 1;
  const canvas = h("canvas", { width: Math.round(scale * video.videoWidth), height: Math.round(scale * video.videoHeight) });
  canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((take) => canvas.toBlob(take, "image/jpeg", 0.92));
  const stamp = new Date().toISOString().slice(0, 23).replace(/[:.T]/g, "-");
  number += 1;
  return new File([blob], `camera-${stamp}-${number}.jpg`, { type: "image/jpeg" });
}
