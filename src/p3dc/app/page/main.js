/** Puts the parts together: what is shown when, the header, and keys that work everywhere. */

import { listenInAsk, showResults } from "./ask.js";
import { addColours } from "./colours.js";
import { find, set } from "./dom.js";
import { listenEverywhere } from "./drop.js";
import { listenForChanges } from "./events.js";
import { listenForFiles, showFiles } from "./files.js";
import { showGroups } from "./groups.js";
import { listenForHelp } from "./keys.js";
import { listenForLight } from "./light.js";
import { listenInMap, showMap } from "./map.js";
import { listenInMenu } from "./menus.js";
import { keep } from "./moving.js";
import { listenForPictures } from "./pictures.js";
import { listenInProjects, showProject } from "./projects.js";
import { listenForCancel, showSending } from "./sending.js";
import * as service from "./service.js";
import { act, areSending, refresh, report, shownView, state, watch, watchOnly } from "./store.js";
import { listenInTeach, showClasses } from "./teach.js";
import { authorise } from "./token.js";
import { listenInTriangle, showTriangle } from "./triangle.js";
import { listenForUnknown, showUnknown } from "./unknown.js";
import { listenForUploads } from "./uploads.js";
import { listenInWhy } from "./why.js";

let started = false;

/** Show the start screen of an empty project until the user begins. */
function showStart() {
  const { classes, photos } = state.project;
  const empty = !started && !classes.length && !photos.length && !state.uploads.length;
  find("start").hidden = !empty;
  find("parts").hidden = empty;
  find("bar").hidden = empty;
}

function showHeader() {
  for (const name of ["undo", "redo"]) {
    const title = state.project[name];
    const word = name === "undo" ? "Undo" : "Redo";
    find(name).disabled = title === null;
    find(name).title = title === null ? `Nothing to ${name}` : `${word}: ${title}`;
    find(name).setAttribute("aria-label", title === null ? word : `${word}: ${title}`);
  }
}

function showFoot() {
  const { kept_in: folder, backbone, n_base_classes: n, priors } = state.project;
  find("kept").textContent = folder
    ? `Kept in ${folder}`
    : "This project lives in memory only: it is gone when the service stops.";
  const base = priors === "drawn birds" ? `${n} other drawn birds as base classes` : `${n ? n.toLocaleString("en") : "no"} base classes`;
  find("about").textContent = `${backbone}, ${base}. Photos stay on the machine that runs p3dc.`;
}

function begin() {
  started = true;
  showStart();
  find("new-class-name").focus();
}

async function loadExampleSet() {
  const pressed = find("example-set");
  const words = pressed.textContent;
  set(pressed, { disabled: true, "aria-busy": "true" });
  pressed.textContent = "Loading the examples …";
  const loaded = await act(service.loadExampleSet);
  set(pressed, { disabled: false, "aria-busy": null });
  pressed.textContent = words;
  if (!loaded) return;
  if (find("ask").getBoundingClientRect().top > innerHeight / 2) find("results-head").scrollIntoView();
  find("results").querySelector('[tabindex="0"]')?.focus({ preventScroll: true });
}

function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input:not([type=file]), select, textarea");
    if (typing || !(event.ctrlKey || event.metaKey) || document.querySelector("dialog[open]")) return;
    const key = event.key.toLowerCase();
    const name = key === "y" || (key === "z" && event.shiftKey) ? "redo" : key === "z" ? "undo" : null;
    if (!name) return;
    event.preventDefault();
    find(name).click();
  });
}

/** Mark the part in view in the bar. */
function followScrolling() {
  const links = new Map([...find("bar").querySelectorAll("a")].map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      set(links.get(target.id), { "aria-current": isIntersecting ? "true" : null });
    }
  }, { rootMargin: "-45% 0px -54% 0px" });
  for (const id of links.keys()) seen.observe(find(id));
}

addColours();
service.onUnauthorised(authorise);
for (const show of [showStart, showSending]) watch(show);
for (const show of [showHeader, showFoot, showFiles, showProject]) watchOnly(() => [state.project], show);
watchOnly(() => [state.project, state.view, areSending()], showClasses);
watchOnly(() => [state.project, state.view, shownView(), areSending()], showResults);
for (const show of [showGroups, showMap, showUnknown]) watchOnly(() => [state.project, state.view, shownView()], show);
watch(showTriangle);
for (const listen of [listenInTeach, listenInAsk, listenInMap, listenInTriangle, listenInMenu, listenInWhy, listenForHelp, listenForUnknown]) listen();
for (const listen of [listenForUploads, listenForCancel, listenForChanges, listenForPictures, listenInProjects]) listen();
for (const listen of [listenEverywhere, listenForFiles, listenForLight, listenToKeys, followScrolling]) listen();
find("undo").addEventListener("click", async () => {
  await keep(); // a point that has just been moved is the last change
  act(service.undo);
});
find("redo").addEventListener("click", () => act(service.redo));
find("example-set").addEventListener("click", loadExampleSet);
find("first-class").addEventListener("click", begin);
window.addEventListener("focus", () => refresh().catch(report)); // changes are told, unless the network loses them
refresh().catch(report);
