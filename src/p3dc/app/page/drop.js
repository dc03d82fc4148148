/** Dropping and pasting: files from outside, and photos from one class to another. */

import { changePhoto } from "./service.js";
import { act, state } from "./store.js";
import { upload } from "./uploads.js";

const PHOTO = "application/x-p3dc-photo";

/** Make an element's photo draggable. */
export function draggable(element, id) {
  element.draggable = true;
  element.addEventListener("dragstart", (event) => {
    event.dataTransfer.setData(PHOTO, id);
    event.dataTransfer.effectAllowed = "move";
  });
}

/** Let `element` take files and photos for a class, or to be labelled where `classId` is null. */
export function droppable(element, classId) {
  const over = (event) => {
    const { types } = event.dataTransfer;
    if (!types.includes("Files") && !types.includes(PHOTO)) return;
    event.preventDefault();
    element.classList.add("over");
  };
  element.addEventListener("dragenter", over);
  element.addEventListener("dragover", over);
  element.addEventListener("dragleave", (event) => {
    if (!element.contains(event.relatedTarget)) element.classList.remove("over");
  });
  element.addEventListener("drop", async (event) => {
    event.preventDefault();
    element.classList.remove("over");
    const id = event.dataTransfer.getData(PHOTO);
    const photo = state.project.photos.find((one) => one.id === id);
    if (!id) upload(classId, await filesOf(event.dataTransfer));
    else if (photo && photo.class !== classId) act(() => changePhoto(id, { class: classId }));
  });
}

/** The files of a drop, including those in dropped folders. */
async function filesOf({ items }) {
  const files = [...items].filter(({ kind }) => kind === "file");
  const entries = files.map((item) => item.webkitGetAsEntry() ?? item.getAsFile());
  return (await Promise.all(entries.map(filesIn))).flat();
}

async function filesIn(entry) {
  if (entry instanceof File) return [entry];
  if (entry.isFile) return [await new Promise((take, fail) => entry.file(take, fail))];
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((take, fail) => reader.readEntries(take, fail)); // at most 100 a call
    if (!some.length) return (await Promise.all(found.map(filesIn))).flat();
    found.push(...some.filter(({ name }) => !name.startsWith(".")));
  }
}

/** Elsewhere a drop does nothing; a pasted picture joins the photos to be labelled. */
export function listenEverywhere() {
  for (const kind of ["dragover", "drop"]) {
    window.addEventListener(kind, (event) => {
      if (event.defaultPrevented) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = "none";
    });
  }
  window.addEventListener("paste", (event) => {
    const files = [...event.clipboardData.files];
    if (!files.length) return;
    event.preventDefault();
    upload(null, files);
  });
}
