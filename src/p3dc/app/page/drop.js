/** Dropping, choosing and pasting: a drop on a class teaches it, any other is to be labelled. */

import { count, find } from "./dom.js";
import { carriesPhotos, photosDragged } from "./dragging.js";
import { filesOf, filesOfFolder, inClassFolders } from "./folders.js";
import { movePhotos } from "./moves.js";
import { ask } from "./question.js";
import { add, upload } from "./uploads.js";

const carriesFiles = ({ types }) => types.includes("Files");

/** Let `element` take files and photos for a class, or to be labelled where `classId` is null. */
export function droppable(element, classId) {
  const over = (event) => {
    if (!carriesFiles(event.dataTransfer) && !carriesPhotos(event.dataTransfer)) return;
    event.preventDefault();
    element.classList.add("over");
  };
  element.addEventListener("dragenter", over);
  element.addEventListener("dragover", over);
  element.addEventListener("dragleave", (event) => {
    if (!element.contains(event.relatedTarget)) element.classList.remove("over");
  });
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    element.classList.remove("over");
    if (carriesPhotos(event.dataTransfer)) movePhotos(photosDragged(event.dataTransfer), classId);
    else takeDrop(event.dataTransfer, classId);
  });
}

async function takeDrop(transfer, classId) {
  const found = await filesOf(transfer);
  if (classId === null) take(found);
  else add(found.map((photo) => ({ ...photo, class: classId })));
}

/** Take photos that were given to no class; ask first if class folders of them could be taught. */
async function take(found) {
  const sorted = inClassFolders(found);
  const folders = new Set(sorted?.map(({ folder }) => folder));
  const goal = sorted ? await askWhatFor(sorted.length, [...folders]) : "label";
  if (goal) add(goal === "teach" ? sorted : found);
}

function askWhatFor(n, folders) {
  const more = folders.length > 4 ? ` and ${folders.length - 4} more` : "";
  const first = folders.slice(0, 4).join(", ") + more;
  return ask(`Teach these as ${folders.length} classes?`, [`${count(n, "photo")} in ${folders.length} folders: ${first}.`], [
    { text: `Teach ${folders.length} classes`, value: "teach" },
    { text: "Label them all", value: "label" },
    { text: "Cancel", value: null },
  ]);
}

/** The part of the page that lights up while files are over no class. */
const elsewhere = () => (find("start").hidden ? find("asking") : find("start"));

/** Wherever else files are dropped, and when a picture is pasted or a folder chosen, photos are to be labelled. */
export function listenEverywhere() {
  const dark = () => [find("asking"), find("start")].forEach((part) => part.classList.remove("over"));
  window.addEventListener("dragover", (event) => {
    if (event.defaultPrevented) return dark();
    event.preventDefault();
    const taken = carriesFiles(event.dataTransfer) && !document.querySelector("dialog[open]");
    event.dataTransfer.dropEffect = taken ? "copy" : "none";
    if (taken) elsewhere().classList.add("over");
  });
  window.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) dark();
  });
  window.addEventListener("drop", (event) => {
    dark();
    if (event.defaultPrevented) return;
    event.preventDefault();
    if (carriesFiles(event.dataTransfer) && !document.querySelector("dialog[open]")) takeDrop(event.dataTransfer, null);
  });
  window.addEventListener("paste", (event) => {
    const files = [...event.clipboardData.files];
    if (!files.length) return;
    event.preventDefault();
    upload(null, files);
  });
  for (const input of document.querySelectorAll("input[webkitdirectory]")) {
    input.addEventListener("change", () => {
      take(filesOfFolder(input.files));
      input.value = "";
    });
  }
}
