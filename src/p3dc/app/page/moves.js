/** Saying what photos are, and deleting them: one step of undo, however many they are. */

import { count } from "./dom.js";
import { classNamed, classOf, keptLabelOf, photoOf } from "./lookup.js";
import { announce, showNotice } from "./notices.js";
import * as service from "./service.js";
import { act, state } from "./store.js";

const several = (ids) => (ids.length === 1 ? (photoOf(ids[0])?.name ?? "The photo") : count(ids.length, "photo"));

async function send(moves, newClass, sentence) {
  if (!moves.length) return null;
  const answer = await act(() => service.movePhotos(moves, newClass));
  if (answer) announce(sentence);
  return answer;
}

/** Move photos to a class, or back to those that are to be labelled where `classId` is null. */
export function movePhotos(ids, classId) {
  const moved = ids.filter((id) => photoOf(id) && photoOf(id).class !== classId);
  const goal = classId === null ? "the photos to be labelled" : classOf(classId).name;
  return send(moved.map((id) => ({ id, class: classId })), null, `${several(moved)} moved to ${goal}.`);
}

export const moveToNewClass = (ids, name) =>
  send(ids.map((id) => ({ id, class: null })), name, `${several(ids)} moved to the new class ${name}.`);

/** Accept the labels of photos: each is taught as what it was labelled. Those without a label stay. */
export function acceptPhotos(ids) {
  const waiting = ids.filter((id) => photoOf(id)?.class === null);
  const moves = waiting.flatMap((id) => {
    const found = keptLabelOf(id);
    const known = found && !found.unknown && classNamed(found.label);
    return known ? [{ id, class: known.id }] : [];
  });
  const left = waiting.length - moves.length;
  if (left) showNotice(`${count(left, "photo")} without a label cannot be accepted. Say what it is instead.`);
  return send(moves, null, `${several(moves.map(({ id }) => id))} accepted.`);
}

/** Delete photos, with a way back. */
export async function deletePhotos(ids) {
  const sentence = `${several(ids)} ${ids.length === 1 ? "is" : "are"} deleted.`;
  if (ids.length && (await act(() => service.deletePhotos(ids)))) offerUndo(sentence);
}

/** What a key does to photos: 1 to 9 give a class, U takes it back, Delete deletes. Returns whether it does anything. */
export function actByKey(key, ids) {
  const known = /^[1-9]$/.test(key) ? state.project.classes[Number(key) - 1] : null;
  if (known) movePhotos(ids, known.id);
  else if (key === "u" || key === "U") movePhotos(ids, null);
  else if (key === "Delete") deletePhotos(ids);
  else return false;
  return true;
}

/** Delete a class, with a way back. */
export async function deleteClass({ id, name }) {
  if (await act(() => service.deleteClass(id))) offerUndo(`The class ${name} is deleted, with its photos.`);
}

/** A sentence with a button that undoes what it says, unless something else was done since. */
export function offerUndo(sentence) {
  const { revision } = state.project;
  const run = () => {
    if (state.project.revision === revision) act(service.undo);
    else showNotice("Something else was done since. Undo goes back step by step.");
  };
  showNotice(sentence, { text: "Undo", run });
}
