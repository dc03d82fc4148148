/** The menu of projects: open one, or begin another. */

import { count, find } from "./dom.js";
import { openMenu } from "./menus.js";
import { showNotice } from "./notices.js";
import { askName } from "./question.js";
import { getProjects, openProject } from "./service.js";
import { act, report, state } from "./store.js";
import { pausing } from "./uploads.js";

async function open(name) {
  const waiting = state.uploads.length;
  const opened = await pausing(() => act(() => openProject(name)));
  if (opened && waiting) showNotice(`${count(waiting, "photo")} of the other project wait until it is opened again.`);
}

async function begin() {
  const name = await askName("New project", "Name of the project", "Make it");
  if (name) open(name);
}

function sizeOf({ photos, classes }) {
  return photos === null ? "open elsewhere" : `${classes === 1 ? "1 class" : `${classes} classes`}, ${count(photos, "photo")}`;
}

async function openProjectMenu() {
  const { folder, open: current, projects } = await getProjects();
  openMenu(find("projects"), "Projects", [
    `Projects in ${folder}`,
    ...projects.map((each) => ({
      text: `${each.name} (${sizeOf(each)})`,
      icon: each.name === current ? "check" : "open",
      test: "open-project",
      run: () => each.name !== current && open(each.name),
    })),
    { text: "New project …", icon: "plus", test: "new-project", run: begin },
  ]);
}

let shown;

/** Show the name of the project; where there is only one there is nothing to choose. */
export function showProject() {
  const { name } = state.project;
  if (name === shown) return;
  shown = name;
  find("project-name").textContent = name;
  find("projects").setAttribute("aria-label", `Project ${name}`);
  getProjects().then(({ folder }) => { find("projects").hidden = folder === null; }).catch(report);
}

export function listenInProjects() {
  find("projects").addEventListener("click", () => openProjectMenu().catch(report));
}
