/** Finding photos, classes and labels: indexed once for each answer of the service, so that no card costs a search. */

import { look } from "./colours.js";
import { shownView, state } from "./store.js";

/** `build(source)`, built once for each source. */
function once(build) {
  const built = new WeakMap();
  return (source) => {
    if (!built.has(source)) built.set(source, build(source));
    return built.get(source);
  };
}

const byId = (items = []) => new Map(items.map((item) => [item.id, item]));

const ofProject = once(({ photos, classes }) => {
  const members = new Map([[null, []], ...classes.map(({ id }) => [id, []])]);
  for (const photo of photos) members.get(photo.class)?.push(photo);
  return {
    photos: byId(photos),
    classes: byId(classes),
    names: new Map(classes.map((known) => [known.name, known])),
    places: new Map(classes.map(({ id }, place) => [id, place])),
    members,
  };
});
const ofView = once(({ labels, order = [], misfiled, duplicates }) => ({
  labels: byId(labels),
  ranks: new Map(order.map((id, rank) => [id, rank])),
  misfiled: byId(misfiled),
  twins: new Map(duplicates.flatMap(([one, other]) => [[one, other], [other, one]])),
}));

export const photoOf = (id) => ofProject(state.project).photos.get(id);
export const photosOf = (classId) => ofProject(state.project).members.get(classId) ?? [];
export const classOf = (id) => ofProject(state.project).classes.get(id);
export const classNamed = (name) => ofProject(state.project).names.get(name);

/** Names of CSS classes for the colour and the marker of a class; its place in the user's order decides them. */
export const lookOf = (classId) => look(placeOf(classId));
export const lookNamed = (name) => (classNamed(name) ? lookOf(classNamed(name).id) : look(null));
export const placeOf = (classId) => ofProject(state.project).places.get(classId);

/** The label of a photo as it is shown, at the moving point if there is one. */
export const labelOf = (id) => shownView() && ofView(shownView()).labels.get(id);

/** The label of a photo at the point that is kept, and its rank among those worth labelling, the lowest first. */
export const keptLabelOf = (id) => state.view && ofView(state.view).labels.get(id);
export const rankOf = (id) => (state.view && ofView(state.view).ranks.get(id)) ?? Infinity;

/** Why a taught photo may be in the wrong place, or null. */
export function doubtAbout(id) {
  if (!state.view) return null;
  const { misfiled, twins } = ofView(state.view);
  if (misfiled.has(id)) return `Nearer to ${misfiled.get(id).nearer_to} than to the rest of its class.`;
  const twin = photoOf(twins.get(id));
  return twin ? `Shows the same as ${twin.name}.` : null;
}
