/** Which of the photos that were asked are shown, and in which order. */

import { classNamed, classOf, keptLabelOf, rankOf } from "./lookup.js";
import { state } from "./store.js";

/** A label is doubtful from here on; 1 is as doubtful as can be. */
const DOUBTFUL = 0.5;

export const SORTS = {
  useful: "Most useful first",
  doubt: "Most doubtful first",
  label: "By label",
  name: "By name",
  newest: "Newest first",
};

export const FILTERS = {
  waiting: "To be checked",
  doubtful: "Doubtful",
  unknown: "Unknown",
  accepted: "Accepted",
  all: "All",
};

export const choice = { sort: "useful", filter: "waiting" };

/** How doubtful the label of a photo is, from 0 to 1. */
export const doubtOf = (id) => keptLabelOf(id)?.doubt ?? 0;

const SHOWN = {
  waiting: (photo) => photo.class === null,
  doubtful: (photo) => photo.class === null && doubtOf(photo.id) >= DOUBTFUL,
  unknown: (photo) => photo.class === null && keptLabelOf(photo.id)?.unknown,
  accepted: (photo) => photo.class !== null,
  all: () => true,
};

/** The name of a photo's class, or of its label. */
const nameOf = (photo) => (photo.class ? classOf(photo.class).name : (keptLabelOf(photo.id)?.label ?? ""));

const compare = new Intl.Collator("en", { numeric: true }).compare;

const KEYS = {
  useful: (a, b) => rankOf(a.id) - rankOf(b.id) || 0,
  doubt: (a, b) => doubtOf(b.id) - doubtOf(a.id),
  label: (a, b) => compare(nameOf(a), nameOf(b)) || doubtOf(b.id) - doubtOf(a.id),
  name: (a, b) => compare(a.name, b.name),
};

/** Photos that were asked, in the order in which they came. */
export const asked = () => state.project.photos.filter((photo) => photo.asked ?? photo.class === null);

/** Photos that pass a filter, in the chosen order; what is equal, such as photos without a rank yet, stays as it came. */
export function listed(photos) {
  const shown = SHOWN[choice.filter] ?? ((photo) => (photo.class ?? labelledAs(photo)) === choice.filter);
  const found = photos.filter(shown);
  return choice.sort === "newest" ? found.reverse() : found.sort(KEYS[choice.sort]);
}

function labelledAs(photo) {
  const found = keptLabelOf(photo.id);
  return found && !found.unknown ? classNamed(found.label)?.id : undefined;
}
