/**
 * Photos that wait to be sent, kept by the browser until the service has answered: they outlast an outage and a reload.
 *
 * A photo is `{key, drop, place, of, class, folder, name, file, project}`: `place` of `of` photos in a drop, for the class
 * with the id `class`, for the class named `folder`, or, without either, to be labelled. All windows see the same queue.
 */

import { changed, state } from "./store.js";

const STORE = "photos";
const AT_ONCE = 50;

let database = null;

function opened() {
  database ??= new Promise((take, fail) => {
    const asked = indexedDB.open("p3dc-uploads", 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore(STORE, { keyPath: "key" });
    asked.onsuccess = () => take(asked.result);
    asked.onerror = () => fail(asked.error);
  });
  return database;
}

/** Run `work` on the store in one transaction; resolves to the result of the request that it returns, if it does. */
async function transact(mode, work) {
  const transaction = (await opened()).transaction(STORE, mode);
  const asked = work(transaction.objectStore(STORE));
  return new Promise((take, fail) => {
    transaction.oncomplete = () => take(asked?.result);
    transaction.onabort = transaction.onerror = () => fail(transaction.error);
  });
}

const windows = new BroadcastChannel("p3dc-uploads");
/** Keys of photos that only this window knows, and of those that are no longer to be sent. */
const unwritten = new Set();
const gone = new Set();

windows.onmessage = ({ data: { added = [], removed = [] } }) => {
  show(added);
  hide(removed);
};

function show(photos) {
  const known = new Set(state.uploads.map(({ key }) => key));
  const here = ({ key, project }) => !known.has(key) && !gone.has(key) && project === state.project?.kept_in;
  state.uploads.push(...photos.filter(here));
  changed();
}

function hide(keys) {
  for (const key of keys) gone.add(key);
  state.uploads = state.uploads.filter(({ key }) => !gone.has(key));
  changed();
}

/** Show the photos of the open project that were not sent before the page was left. */
export async function readQueue() {
  state.uploads = state.uploads.filter(({ project }) => project === state.project.kept_in);
  show(await transact("readonly", (store) => store.getAll()));
}

/** Add photos to the queue. Resolves to whether the browser has room to keep them all. */
export async function enqueue(photos) {
  let kept = true;
  window.addEventListener("beforeunload", warn); // what is not yet written would be lost
  for (const { key } of photos) unwritten.add(key);
  show(photos);
  for (let first = 0; first < photos.length; first += AT_ONCE) {
    const some = photos.slice(first, first + AT_ONCE).filter(({ key }) => !gone.has(key));
    const put = (store) => some.forEach((photo) => store.put(photo));
    const written = await transact("readwrite", put).then(() => true, () => false);
    kept &&= written;
    if (!written) continue;
    for (const { key } of some) unwritten.delete(key);
    windows.postMessage({ added: some.filter(({ key }) => !gone.has(key)) });
  }
  window.removeEventListener("beforeunload", warn);
  return kept;
}

const warn = (event) => event.preventDefault();

/** Leave out photos that other windows sent in the meantime. */
export async function leaveOutSent() {
  const waiting = new Set(await transact("readonly", (store) => store.getAllKeys()));
  hide(state.uploads.map(({ key }) => key).filter((key) => !unwritten.has(key) && !waiting.has(key)));
}

/** Take photos that were answered, or are not to be sent, out of the queue. */
export async function remove(photos) {
  const keys = photos.map(({ key }) => key);
  hide(keys);
  windows.postMessage({ removed: keys });
  await transact("readwrite", (store) => keys.forEach((key) => store.delete(key))).catch(() => {});
}
