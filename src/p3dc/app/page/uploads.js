/** Sending photos: small requests, two at a time, and one message for all that failed. */

import { count } from "./dom.js";
import { showFailure } from "./notices.js";
import { Refused, sendPhotos } from "./service.js";
import { changed, refresh, report, state } from "./store.js";

const FILES = 8;
const AT_ONCE = 2;

/** Split files into requests of at most FILES files and `bytes` bytes. */
function batches(files, bytes) {
  const all = [];
  let size = Infinity;
  for (const file of files) {
    const last = all.at(-1);
    if (!last || last.length === FILES || size + file.size > bytes) {
      all.push([file]);
      size = file.size;
    } else {
      last.push(file);
      size += file.size;
    }
  }
  return all;
}

/** Add photos to a class, or to be labelled where `classId` is null. */
export async function upload(classId, files) {
  if (!files.length) return;
  const { bytes } = state.project.limits;
  const most = 0.98 * bytes; // the rest is for the form's own lines
  const tooLarge = files.filter((file) => file.size > most);
  const limit = `${Math.floor(bytes / 2 ** 20)} MB`;
  const failures = tooLarge.map(({ name }) => ({ name, message: `${name} is larger than ${limit}.` }));
  const fitting = files.filter((file) => file.size <= most);
  const sending = { class: classId, left: fitting.length };
  state.uploads.push(sending);
  changed();

  const waiting = batches(fitting, most);
  const work = async () => {
    for (let batch = waiting.shift(); batch; batch = waiting.shift()) {
      try {
        failures.push(...(await sendPhotos(classId, batch)).failures);
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        const all = batch.map(({ name }) => ({ name, message: error.message }));
        failures.push(...(error.failures.length ? error.failures : all));
      }
      sending.left -= batch.length;
      await refresh();
    }
  };
  try {
    await Promise.all(Array.from({ length: AT_ONCE }, work));
  } catch (error) {
    report(error);
  }
  state.uploads.splice(state.uploads.indexOf(sending), 1);
  changed();
  if (failures.length) showFailure(`${count(failures.length, "file")} could not be added.`, failures);
}

/** How many photos are on their way to a class. */
export const onTheirWay = (classId) =>
  state.uploads.filter((sending) => sending.class === classId).reduce((sum, { left }) => sum + left, 0);

/** Placeholders for photos on their way. */
export const placeholders = (n) => Array.from({ length: n }, (_, i) => ({ id: `coming-${i}`, coming: true }));
