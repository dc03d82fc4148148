/** Why a photo has its label: cosines, the nearest photos, and the base classes that pulled them. */

import { button, decimal, find, h, icon, percent, percentInWords } from "./dom.js";
import { deletePhoto, openMenu, placesFor } from "./menus.js";
import { editableName } from "./name.js";
import { changePhoto, getExplanation, Refused, thumbnail } from "./service.js";
import { act, colourNamed, doubtAbout, report, state } from "./store.js";

let opened = null;

/** Open the dialog for a photo, with its name ready to be changed if `rename`; the reasons follow. */
export async function openWhy(id, { rename = false } = {}) {
  const photo = state.project.photos.find((one) => one.id === id);
  const dialog = find("why");
  const body = h("div", { class: "why-body" }, says("Looking …"));
  dialog.replaceChildren(head(photo, dialog), body);
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  if (rename) dialog.querySelector(".name").select();
  opened = id;
  const found = await reasons(photo);
  if (found && opened === id) body.replaceChildren(...found);
}

async function reasons(photo) {
  try {
    return parts(photo, await getExplanation(photo.id));
  } catch (error) {
    if (error instanceof Refused) return [says(error.message)];
    return report(error);
  }
}

const says = (...words) => h("p", { id: "why-verdict", class: "why-verdict" }, ...words);
const strong = (label) => h("strong", { class: colourNamed(label) }, label);
const quiet = (words) => h("p", { class: "quiet" }, words);

function head(photo, dialog) {
  const rename = (text) => act(() => changePhoto(photo.id, { name: text }));
  const name = editableName({ "data-test": "photo-name", "aria-label": "Name of the photo" }, rename);
  name.show(photo.name);
  const leaving = (run) => () => {
    dialog.close();
    run();
  };
  const places = placesFor(photo).map((place) => ({ ...place, run: leaving(place.run) }));
  const openPlaces = () => openMenu(move, "Move to", places);
  const move = button("button small", "why-move", openPlaces, photo.class ? "Move to …" : "This is …");
  move.hidden = !places.length;
  move.setAttribute("aria-haspopup", "menu");
  const remove = button("button small danger", "why-delete", leaving(() => deletePhoto(photo)), icon("trash"), "Delete");
  const close = button("tool", "why-close", () => dialog.close(), icon("close"));
  close.setAttribute("aria-label", "Close");
  close.autofocus = true;
  return h("header", { class: "why-head" },
    h("img", { src: thumbnail(photo.id), alt: `The photo ${photo.name}` }),
    h("div", { class: "why-side" }, name.input, h("div", { class: "row" }, move, remove)),
    close);
}

function parts(photo, why) {
  if (!photo.class) return [verdict(why), ...cosines(why), ...neighbours(photo, why)];
  return [verdictOnSupport(photo), ...cosines(why), ...ownPull(why), ...neighbours(photo, why)];
}

function verdict(why) {
  if (!why.unknown) {
    const next = why.runner_up ? ` Next is ${why.runner_up} with ${percentInWords(why.runner_up_probability)}.` : "";
    return says("Most like ", strong(why.label), `: ${percentInWords(why.probability)} sure.${next}`);
  }
  const [nearest] = why.cosines;
  if (nearest.cosine >= why.unknown_below) {
    const others = " It and other photos resemble each other more than any class. The nearest is ";
    return says(h("strong", {}, "Unknown"), ":", others, strong(nearest.label), ` with a cosine of ${decimal(nearest.cosine)}.`);
  }
  const numbers = ` with a cosine of ${decimal(nearest.cosine)}; a label needs ${decimal(why.unknown_below)}.`;
  return says(h("strong", {}, "Unknown"), ": not like any class. The nearest is ", strong(nearest.label), numbers);
}

function verdictOnSupport(photo) {
  const { name } = state.project.classes.find((known) => known.id === photo.class);
  const doubt = doubtAbout(photo.id);
  return says("You said this is ", strong(name), ".", doubt ? ` ${doubt}` : "");
}

const row = (name, track, value) =>
  h("li", {}, h("span", { class: "bar-name" }, name), track, h("span", { class: "bar-value" }, value));

/** Bars from zero, with a line where "unknown" ends. */
function cosines({ cosines: all, unknown_below: least }) {
  const values = [0, ...all.map(({ cosine }) => cosine), ...(least === null ? [] : [least])];
  const [low, high] = [Math.min(...values), Math.max(...values, 0.1)];
  const place = (value) => (100 * (value - low)) / (high - low);
  const rows = all.map(({ label, cosine }) => {
    const fill = h("span", { class: `fill ${colourNamed(label)}` });
    fill.style.left = `${place(Math.min(0, cosine))}%`;
    fill.style.width = `${Math.abs(place(cosine) - place(0))}%`;
    const track = h("span", { class: "bar-track", "aria-hidden": "true" }, fill);
    if (least !== null) {
      const line = h("span", { class: "least" });
      line.style.left = `${place(least)}%`;
      track.append(line);
    }
    return row(label, track, decimal(cosine));
  });
  const line = least === null ? "" : ` Below ${decimal(least)}, the line, a photo is unknown.`;
  return [
    h("h3", {}, "How near it is to each class"),
    quiet(`Cosine to each class; the largest wins.${line}`),
    h("ul", { class: "bars", "data-test": "cosines" }, ...rows),
  ];
}

const isPulled = ({ alpha, beta }) => alpha + beta > 0;

function ownPull(why) {
  const { alpha, beta, base_classes: all } = why;
  const note = isPulled(why)
    ? `By weight. At α ${decimal(alpha)}, β ${decimal(beta)} base classes make up ${percent(alpha + beta)} of it.`
    : "At α 0 and β 0 photos stay where they are. With more pull, these base classes would move it, by weight.";
  const list = all?.length ? pulls(all) : quiet("No base class pulls it.");
  return [h("h3", {}, isPulled(why) ? "What pulled it" : "What would pull it"), quiet(note), list];
}

/** Base classes with their weights, largest first. */
function pulls(all) {
  const full = Math.max(0.4, ...all.map(({ weight }) => weight));
  return h("ul", { class: "bars pulls", "data-test": "pulled-by" }, ...all.map(({ name, weight, central }) => {
    const fill = h("span", { class: "fill c-none" });
    fill.style.width = `${(100 * weight) / full}%`;
    return row(title(name, central), h("span", { class: "bar-track", "aria-hidden": "true" }, fill), percent(weight));
  }));
}

/** The name of a base class, or the most central photos of a cluster: their pictures, or the name of the first. */
function title(name, central) {
  const pictures = central.filter((photo) => photo.thumbnail);
  if (!pictures.length) return central.length ? `Cluster of ${central[0].name}` : name;
  return h("span", { class: "central", "data-test": "central" }, ...pictures.map((photo) =>
    h("img", { src: photo.thumbnail, alt: photo.name, title: photo.name, loading: "lazy" })));
}

function neighbours(photo, why) {
  const others = why.neighbours.filter(({ id }) => id !== photo.id);
  return [
    h("h3", {}, photo.class ? "The photos nearest to it" : "The nearest photos that you taught"),
    quiet(`With the base classes that ${isPulled(why) ? "pulled" : "would pull"} each of them, by weight.`),
    h("ul", { class: "neighbours" }, ...others.map(neighbour)),
  ];
}

function neighbour({ id, name, label, cosine, base_classes: all }) {
  const open = button("tile-open", "neighbour-photo", () => openWhy(id), h("img", { src: thumbnail(id), alt: "" }));
  open.setAttribute("aria-label", `What pulled ${name}?`);
  const title = h("p", {}, strong(label), h("span", { class: "quiet" }, ` ${name} · cosine ${decimal(cosine)}`));
  const list = all.length ? pulls(all) : quiet("No base class pulls it.");
  return h("li", { "data-test": "neighbour" }, open, h("div", {}, title, list));
}
