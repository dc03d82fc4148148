/** The page's copy of the project, and the listeners that redraw when it changes. */

import { showFailure } from "./notices.js";
import * as service from "./service.js";

export const state = {
  project: null,
  view: null,
  accuracy: null,
  /** While the triangle's point moves: {alpha, beta, view, accuracy}, the last two as they arrive. */
  preview: null,
  /** Photos on their way: [{class, left}], `left` of them not yet answered. */
  uploads: [],
  reachable: true,
};

const listeners = [];

/** Call `listener` after each change. */
export function watch(listener) {
  listeners.push(listener);
}

export function changed() {
  if (state.project) for (const listener of listeners) listener();
}

/** The view and the leave-one-out accuracy to be shown, those of the moving point if there is one. */
export const shownView = () => state.preview?.view ?? state.view;
export const shownAccuracy = () => state.preview?.accuracy ?? state.accuracy;

export const photosOf = (classId) => state.project.photos.filter((photo) => photo.class === classId);

/** The place of a class in the user's order decides its colour. */
export const colourOf = (classId) => `c${state.project.classes.findIndex(({ id }) => id === classId) % 8}`;
export const classNamed = (name) => state.project.classes.find((known) => known.name === name);
export const colourNamed = (name) => (classNamed(name) ? colourOf(classNamed(name).id) : "c-none");

/** Why a photo may be in the wrong place, or null. */
export function doubtAbout(id) {
  const misfiled = state.view?.misfiled.find((found) => found.id === id);
  if (misfiled) return `Nearer to ${misfiled.nearer_to} than to the rest of its class.`;
  const pair = state.view?.duplicates.find((ids) => ids.includes(id));
  const other = pair && state.project.photos.find((photo) => pair.includes(photo.id) && photo.id !== id);
  return other ? `Shows the same as ${other.name}.` : null;
}

let running = null;
let again = false;

/** Fetch the project and what follows from it. Calls while one is running lead to one more. */
export function refresh() {
  again = true;
  running ??= (async () => {
    try {
      while (again) {
        again = false;
        await fetchAll();
      }
    } finally {
      running = null;
    }
  })();
  return running;
}

async function fetchAll() {
  state.project = await service.getProject();
  changed();
  await Promise.all([
    service.getView().then((view) => take({ view, reachable: true })),
    service.getLeaveOneOut().then((accuracy) => take({ accuracy })),
  ]);
  if (state.view.revision !== state.project.revision) again = true;
}

/** Show what has arrived: labels do not wait for leave-one-out, which takes longer. */
function take(arrived) {
  Object.assign(state, arrived);
  changed();
}

/** Change something in the service, then refresh. Resolves to its answer, or to null when it was refused. */
export async function act(change) {
  try {
    const answer = await change();
    await refresh();
    return answer;
  } catch (error) {
    report(error);
    return null;
  }
}

/** Show what went wrong; try a service that does not answer until it does. */
export function report(error) {
  if (error instanceof service.Unreachable) waitForService();
  else if (error instanceof service.Refused) showFailure(error.message, error.failures);
  else throw error;
}

async function waitForService() {
  if (!state.reachable) return;
  state.reachable = false;
  document.getElementById("connection").hidden = false;
  while (!state.reachable) {
    await new Promise((done) => setTimeout(done, 1500));
    await refresh().catch(() => {});
  }
  document.getElementById("connection").hidden = true;
}
