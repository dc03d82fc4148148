/** The page's copy of the project, and the listeners that redraw when it changes. */

import { showFailure, showNotice } from "./notices.js";
import * as service from "./service.js";

export const state = {
  project: null,
  view: null,
  accuracy: null,
  /** While the triangle's point moves: {alpha, beta, view, accuracy}, the last two as they arrive. */
  preview: null,
  /** Photos that wait to be sent, in their order: see queue.js. */
  uploads: [],
  reachable: true,
};

const PAUSE = 4000;
const AGAIN = 1000;
const NOT_FOUND = 404;

let arrive;

/** Resolves when the project is there for the first time: photos may be dropped before. */
export const arrived = new Promise((done) => { arrive = done; });

const listeners = [];

/** Call `listener` after each change. */
export function watch(listener) {
  listeners.push(listener);
}

/** Call `show` after changes of what `sources` returns, and after no others: a point may move many times a second. */
export function watchOnly(sources, show) {
  let drawn = [];
  watch(() => {
    const now = sources();
    if (now.length === drawn.length && now.every((each, i) => each === drawn[i])) return;
    drawn = now;
    show();
  });
}

export function changed() {
  if (!state.project) return;
  arrive();
  for (const listener of listeners) listener();
}

/** Whether photos are being sent. What comes of it is drawn when the project is fetched again, not at each answer. */
export const areSending = () => state.uploads.length > 0;

/** The view and the leave-one-out accuracy to be shown, those of the moving point if there is one. */
export const shownView = () => state.preview?.view ?? state.view;
export const shownAccuracy = () => state.preview?.accuracy ?? state.accuracy;

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

let soon = null;
let lately = -Infinity;

/** Refresh after a change elsewhere; while photos are being sent, once in a while. */
export function refreshSoon() {
  const wait = areSending() ? lately + PAUSE - performance.now() : 0;
  soon ??= setTimeout(() => {
    soon = null;
    lately = performance.now();
    refresh().catch(report);
  }, Math.max(0, wait));
}

async function fetchAll() {
  const project = await service.getProject();
  if (state.project && isAnother(project)) Object.assign(state, { view: null, accuracy: null, preview: null });
  state.project = project;
  changed();
  await Promise.all([fetchView(), fetchAccuracy()]);
  if (state.view.revision === state.project.revision) return;
  if (areSending()) refreshSoon();
  else again = true;
}

const isAnother = ({ name, kept_in: folder }) => name !== state.project.name || folder !== state.project.kept_in;

let rough = false;

/** Fetch labels and map: those that are made quickly for new photos, and the others once none are being sent. */
async function fetchView() {
  const sending = areSending();
  const current = state.reachable && state.view?.revision === state.project.revision;
  if (!current && (sending || someWait())) {
    const order = state.view?.order ?? [];
    state.view = { ...await service.getRoughView(), order }; // cards stay where they are
    rough = true;
    if (!sending) changed();
  }
  if (!sending && (rough || !current)) {
    state.view = await service.getView();
    rough = false;
  }
  state.reachable = true;
  changed();
}

/** Whether there are photos without a label beside others that have one. */
function someWait() {
  const labelled = new Set(state.view?.labels.map(({ id }) => id));
  return labelled.size > 0 && state.project.photos.some((photo) => photo.class === null && !labelled.has(photo.id));
}

let known = null;

/** Fetch leave-one-out only if what it depends on has changed; labels do not wait for it. */
async function fetchAccuracy() {
  const { name, kept_in: folder, classes, photos, point } = state.project;
  const taught = photos.filter((photo) => photo.class !== null).map((photo) => [photo.id, photo.class]);
  const wanted = JSON.stringify([name, folder, classes, taught, point]);
  if (state.reachable && state.accuracy && wanted === known) return;
  state.accuracy = await service.getLeaveOneOut();
  known = wanted;
  changed();
}

/** Change something in the service, then refresh. Resolves to its answer, or to null when it was refused. */
export async function act(change) {
  try {
    const answer = await change();
    await refresh();
    return answer;
  } catch (error) {
    if (error.status === NOT_FOUND) await showItIsGone().catch(report);
    else report(error);
    return null;
  }
}

/** What was to be changed was deleted elsewhere, perhaps in another window. */
async function showItIsGone() {
  await refresh();
  showNotice("This was deleted in the meantime, perhaps in another window. The page is up to date again.");
}

/** Show what went wrong; try a service that does not answer until it does. */
export function report(error) {
  if (error instanceof service.Unreachable) untilReachable();
  else if (error instanceof service.Refused) showFailure(error.message, error.failures);
  else throw error;
}

let returning = null;

/** Try a service that does not answer; resolves when it does. */
export function untilReachable() {
  returning ??= tryAgain().finally(() => { returning = null; });
  return returning;
}

async function tryAgain() {
  const line = document.getElementById("connection");
  state.reachable = false;
  line.hidden = false;
  changed();
  while (!state.reachable) {
    await new Promise((done) => setTimeout(done, AGAIN));
    await refresh().catch(() => {});
  }
  line.hidden = true;
  changed();
}
