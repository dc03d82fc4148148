/** Sending the photos of the queue: in small requests, a few at a time, by one window at a time, until the service has them all. */

import { count } from "./dom.js";
import { classOf } from "./lookup.js";
import { announce, showFailures, showNotice } from "./notices.js";
import { enqueue, leaveOutSent, readQueue, remove } from "./queue.js";
import { findClass, Refused, sendPhotos, Unreachable } from "./service.js";
import { arrived, refresh, refreshSoon, report, state, untilReachable, watch } from "./store.js";

const FILES = 16;
const BYTES = 16 * 2 ** 20; // large photos go in smaller requests, so that each is answered soon
const AT_ONCE = 2; // one is always waiting for the network while the other is answered
const TURN = 50;
const TRIES = 3;
const SERVER_ERROR = 500;
const NOT_FOUND = 404;
const UNDONE = "undone";

/** The size of each drop since the queue was last empty, and how many photos were refused or cancelled. */
const progress = { drops: new Map(), failed: 0, cancelled: 0 };

/** How many photos were dropped, how many of them the service has, and how many it could not take. */
export function counts() {
  for (const { drop, of } of state.uploads) progress.drops.set(drop, of);
  const total = [...progress.drops.values()].reduce((sum, of) => sum + of, 0) - progress.cancelled;
  return { total, failed: progress.failed, sent: total - progress.failed - state.uploads.length };
}

/** Add files to a class, or to the photos to be labelled where `classId` is null. */
export const upload = (classId, files) =>
  add(files.map((file) => ({ file, name: file.webkitRelativePath || file.name, class: classId })));

/** Add the photos of one drop, each `{file, name, class}` or, for a class by its name, `{file, name, folder}`. */
export async function add(found) {
  await arrived;
  const { bytes } = state.project.limits;
  const limit = `${Math.floor(bytes / 2 ** 20)} MB`;
  const most = 0.98 * bytes; // the rest is for the form's own lines
  const fitting = found.filter(({ file }) => file.size <= most);
  const tooLarge = found.filter(({ file }) => file.size > most);
  showFailures(tooLarge.map(({ name }) => ({ name, message: `${name} is larger than ${limit}.` })));
  if (!fitting.length) return;
  const drop = newName();
  const project = state.project.kept_in;
  const photos = fitting.map(({ file, name, class: classId = null, folder = null }, place) => ({
    key: `${drop}-${String(place).padStart(6, "0")}`, drop, place, of: fitting.length, class: classId, folder, name, file, project,
  }));
  announce(`${count(photos.length, "photo")} on the way.`);
  if (!(await enqueue(photos))) showNotice("The browser has no room to keep these photos: leave this page open until they are sent.");
}

/** A name that no other drop has, and that comes after those before it. */
function newName() {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return Date.now().toString(36) + [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

let last = Promise.resolve();

/** Do `work` while nothing is sent, by this window or by another; over plain HTTP windows know nothing of each other. */
function alone(work) {
  if (navigator.locks) return navigator.locks.request("p3dc-uploads", work);
  last = last.then(work, work);
  return last;
}

let sending = null;
let held = false;

/** Send what waits, unless this is being done. Windows take turns, so that one that is closed leaves the rest to another. */
function wake() {
  if (held || !state.uploads.length) return;
  const end = () => { sending = null; };
  sending ??= alone(takeTurn).finally(end).then(wake, report);
}

async function takeTurn() {
  await leaveOutSent().catch(() => {}); // some browsers keep nothing
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

const inFlight = new Set();

/** The next request: photos of the same drop and class, as many as fit. */
function next() {
  const batch = [];
  let room = Math.min(BYTES, 0.98 * state.project.limits.bytes);
  for (const photo of state.uploads) {
    if (inFlight.has(photo.key)) continue;
    const [first = photo] = batch;
    const same = photo.drop === first.drop && photo.class === first.class && photo.folder === first.folder;
    if (!same || batch.length === FILES || (batch.length && photo.file.size > room)) break;
    batch.push(photo);
    room -= photo.file.size;
  }
  return batch;
}

async function work() {
  for (let n = 0, batch = next(); n < TURN && batch.length && !held; n += 1, batch = next()) {
    for (const { key } of batch) inFlight.add(key);
    const failures = await send(batch);
    for (const { key } of batch) inFlight.delete(key);
    if (failures) answered(batch, failures);
    else if (!(await leaveOutUnreadable(batch))) await untilReachable();
  }
}

function answered(batch, failures) {
  progress.failed += failures.length;
  showFailures(failures);
  remove(batch);
  refreshSoon();
}

/** Leave out files that were moved or changed after they were dropped; resolves to whether there were any. */
async function leaveOutUnreadable(batch) {
  const readable = await Promise.all(batch.map(({ file }) => file.slice(0, 1).arrayBuffer().then(() => true, () => false)));
  const lost = batch.filter((_, i) => !readable[i]);
  if (lost.length) answered(lost, lost.map(({ name }) => ({ name, message: "The file was moved or changed." })));
  return lost.length > 0;
}

/** Send a request; resolves to the photos that were refused, or to null if the service does not answer. */
async function send(batch) {
  const [{ drop, class: classId, folder }] = batch;
  for (let attempt = 1; ; attempt += 1) {
    try {
      const goal = folder === null ? classId : await classFor(drop, folder);
      return (await sendPhotos(goal, drop, batch)).failures;
    } catch (error) {
      if (error instanceof Unreachable) return null;
      if (!(error instanceof Refused)) throw error;
      if (error.code === UNDONE) return leaveOut(drop);
      if (error.status >= SERVER_ERROR && attempt < TRIES) continue;
      const message = error.status === NOT_FOUND ? "Its class was deleted in the meantime." : error.message;
      return error.failures.length ? error.failures : batch.map(({ name }) => ({ name, message }));
    }
  }
}

/** A drop that was undone is not sent any further. */
async function leaveOut(drop) {
  const rest = state.uploads.filter((photo) => photo.drop === drop);
  progress.cancelled += rest.length;
  if (rest.length) showNotice(`Undone. Photos that were not yet sent are left out: ${rest.length.toLocaleString("en")}.`);
  await remove(rest);
  return [];
}

const made = new Map();

/** The id of the class that a folder of a drop becomes. The classes of a drop are made in its order. */
async function classFor(drop, folder) {
  const folders = new Set(state.uploads.filter((photo) => photo.drop === drop).map((photo) => photo.folder));
  for (const name of folders) {
    const place = `${drop}/${name}`;
    if (!made.has(place)) made.set(place, findClass(name, drop));
    const refused = (error) => {
      made.delete(place);
      if (name === folder || error instanceof Unreachable) throw error;
    };
    await made.get(place).catch(refused);
    if (name === folder) break;
  }
  return (await made.get(`${drop}/${folder}`)).id;
}

/** Do `work`, which must not run while photos are sent; the rest waits for it. */
export async function pausing(work) {
  held = true;
  try {
    return await alone(work);
  } finally {
    held = false;
    wake();
  }
}

/** Send no more of what waits; resolves, when all that was on its way is answered, to how many are left out. */
export async function cancel() {
  const waiting = state.uploads.filter(({ key }) => !inFlight.has(key));
  progress.cancelled += waiting.length;
  await remove(waiting);
  if (inFlight.size) await pausing(async () => {});
  return waiting.length;
}

const SHOWN = 12;

function waitingFor(classId) {
  const name = classId && classOf(classId).name;
  return state.uploads.filter((photo) => (photo.folder === null ? photo.class === classId : photo.folder === name));
}

/** How many photos wait to be sent to a class, or to be labelled where `classId` is null. */
export const onTheirWay = (classId) => waitingFor(classId).length;

/** Placeholders of the first of them: `{id, coming}`, the latter with a name and a file. */
export const placeholders = (classId) =>
  waitingFor(classId).slice(0, SHOWN).map((photo) => ({
    id: `coming-${photo.key}`,
    coming: { name: photo.name, file: photo.file },
  }));

/** Go on with what was waiting when the page was left or another project was opened. */
export function listenForUploads() {
  let open;
  watch(() => {
    if (!state.uploads.length && progress.drops.size) finish();
    wake();
    if (state.project.kept_in === open) return;
    open = state.project.kept_in;
    readQueue().catch(() => {}); // some browsers keep nothing
  });
}

function finish() {
  Object.assign(progress, { drops: new Map(), failed: 0, cancelled: 0 });
  refresh().catch(report);
}
