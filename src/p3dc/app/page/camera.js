/** Photos from the camera, for a class or to be labelled. */

import { button, find, h, icon } from "./dom.js";
import { state } from "./store.js";
import { upload } from "./uploads.js";

const REASONS = {
  insecure: "Browsers lend the camera only to pages of this machine or over HTTPS. Add photos from files instead.",
  NotAllowedError: "The browser may not use the camera. Allow it in the settings of this page, then try again.",
  NotFoundError: "There is no camera here. Add photos from files instead.",
  NotReadableError: "Another program is using the camera. Close it, then try again.",
};

/** Open the camera for a class, or for photos to be labelled where `classId` is null. */
export async function openCamera(classId) {
  const dialog = find("camera");
  const video = h("video", { autoplay: true, playsinline: true, muted: true });
  const message = h("p", { class: "camera-message", role: "status" }, "Starting the camera …");
  const goal = h("select", { id: "camera-goal", "data-test": "camera-goal" },
    h("option", { value: "" }, "Photos to be labelled"),
    ...state.project.classes.map(({ id, name }) => h("option", { value: id }, name)));
  goal.value = classId ?? "";
  let taken = 0;
  const take = async () => {
    taken += 1;
    const photo = await still(video, `camera-${stamp()}.jpg`);
    message.textContent = `${taken} taken`;
    upload(goal.value || null, [photo]);
  };
  const shoot = button("button primary", "take-photo", take, icon("camera"), "Take photo");
  shoot.disabled = true;
  const close = button("tool", "camera-close", () => dialog.close(), icon("close"));
  close.setAttribute("aria-label", "Close");
  dialog.replaceChildren(
    h("header", { class: "dialog-head" }, h("h2", { id: "camera-title" }, "Camera"), close),
    h("div", { class: "camera-frame" }, video, message),
    h("div", { class: "row camera-row" }, h("label", { for: "camera-goal" }, "Add to"), goal, shoot));
  dialog.showModal();

  const stream = await start(message);
  if (!stream) return;
  const stop = () => stream.getTracks().forEach((track) => track.stop());
  if (!dialog.open) return stop();
  dialog.addEventListener("close", stop, { once: true });
  video.srcObject = stream;
  message.textContent = "";
  shoot.disabled = false;
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

async function still(video, name) {
  const canvas = h("canvas", { width: video.videoWidth, height: video.videoHeight });
  canvas.getContext("2d").drawImage(video, 0, 0);
  const blob = await new Promise((take) => canvas.toBlob(take, "image/jpeg", 0.92));
  return new File([blob], name, { type: "image/jpeg" });
}

const stamp = () => new Date().toISOString().slice(0, 23).replace(/[:.T]/g, "-");
