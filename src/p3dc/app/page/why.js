/** A photo seen large, the ones before and after it, and why it has its label. */

import { choiceButton, openChoice } from "./choose.js";
import { button, decimal, find, h, icon, percent, percentInWords, set } from "./dom.js";
import { classOf, doubtAbout, keptLabelOf, lookNamed, photoOf } from "./lookup.js";
import { acceptPhotos, actByKey, deletePhotos } from "./moves.js";
import { editableName } from "./name.js";
import { changePhoto, getExplanation, original, Refused, thumbnail } from "./service.js";
import { act, report, state } from "./store.js";

/** The photo that is open, and the list that its neighbours are in. */
let opened = { id: null, among: [] };

/** Open the dialog for a photo of the list `among`, with its name ready to be changed if `rename`; the reasons follow. */
export async function openWhy(id, { rename = false, among = [] } = {}) {
  const photo = photoOf(id);
  if (!photo) return;
  const dialog = find("why");
  const body = h("div", { class: "why-body" }, says("Looking …"));
  opened = { id, among };
  const within = document.activeElement?.closest("#why [data-test]")?.dataset.test;
  dialog.replaceChildren(picture(photo), h("div", { class: "why-text" }, head(photo, dialog), body));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  (dialog.querySelector(`[data-test="${within}"]:not(:disabled)`) ?? dialog.querySelector("[autofocus]")).focus();
  if (rename) dialog.querySelector(".name").select();
  const found = await reasons(photo);
  if (found && opened.id === id) body.replaceChildren(...found);
}

/** The photo `step` places on in the list, if it is still there. */
function neighbourAt(step) {
  const place = opened.among.indexOf(opened.id);
  return place < 0 ? undefined : opened.among.slice(step > 0 ? place + 1 : 0, step > 0 ? undefined : place).at(step > 0 ? 0 : -1);
}

function go(step) {
  const next = neighbourAt(step);
  if (next) openWhy(next, { among: opened.among });
}

/** Go on to the next photo, or close after the last one. */
function leave() {
  const next = neighbourAt(1) ?? neighbourAt(-1);
  const rest = opened.among.filter((id) => id !== opened.id);
  if (next) openWhy(next, { among: rest });
  else find("why").close();
}

/** Arrow keys go to the next photo; the keys of the results work here too. */
export function listenInWhy() {
  find("why").addEventListener("keydown", (event) => {
    if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) go(step);
    else if (/^[1-9u]$/i.test(event.key) || event.key === "Delete") {
      const { id } = opened;
      leave();
      actByKey(event.key, [id]);
    } else return;
    event.preventDefault();
  });
}

/** The photo, as large as it is known, between the buttons of the ones before and after it. */
function picture(photo) {
  const image = h("img", { class: "why-image", src: thumbnail(photo.id), alt: `The photo ${photo.name}` });
  if (state.project.originals?.photos) {
    const large = new Image();
    large.onload = () => image.isConnected && image.setAttribute("src", large.src);
    large.src = original(photo.id);
  }
  const step = (by, name, words) => {
    const node = set(button("tool", `why-${name}`, () => go(by), icon(name)), { "aria-label": words });
    node.disabled = !neighbourAt(by);
    return node;
  };
  const place = opened.among.indexOf(photo.id) + 1;
  const where = place && opened.among.length > 1 ? `${place} of ${opened.among.length}` : "";
  return h("div", { class: "why-picture" }, image,
    h("div", { class: "row why-steps" }, step(-1, "previous", "The photo before"), h("span", { class: "quiet" }, where), step(1, "next", "The next photo")));
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
const strong = (label) => h("strong", { class: lookNamed(label) }, label);
const quiet = (words) => h("p", { class: "quiet" }, words);

function head(photo, dialog) {
  const rename = (text) => act(() => changePhoto(photo.id, { name: text }));
  const name = editableName({ "data-test": "photo-name", "aria-label": "Name of the photo" }, rename);
  name.show(photo.name);
  const leaving = (run) => () => {
    leave();
    run();
  };
  const found = photo.class === null ? keptLabelOf(photo.id) : null;
  const accept = button("button small primary", "why-accept", leaving(() => acceptPhotos([photo.id])), icon("check"), "Accept");
  accept.hidden = !found || found.unknown;
  const move = choiceButton("button small", "why-move", () => openChoice(move, [photo.id], leave), photo.class ? "Move to …" : "This is …");
  const remove = button("button small danger", "why-delete", leaving(() => deletePhotos([photo.id])), icon("trash"), "Delete");
  const close = button("tool", "why-close", () => dialog.close(), icon("close"));
  close.setAttribute("aria-label", "Close");
  close.autofocus = true;
  return h("header", { class: "why-head" },
    h("div", { class: "why-side" }, name.input, h("div", { class: "row" }, accept, move, remove)),
    close);
}

function parts(photo, why) {
  if (!photo.class) return [verdict(why), ...cosines(why), ...neighbours(photo, why)];
  return [verdictOnSupport(photo), ...cosines(why), ...ownPull(why), ...neighbours(photo, why)];
}

function verdict(why) {
  if (!why.unknown) {
    const next = why.runner_up ? ` Next is ${why.runner_up} with ${percentInWords(why.runner_up_probability)}.` : "";
    return says("Most like ", strong(why.label), `: ${percentInWords(why.probability)} sure.${next}`, ...unpulled(why));
  }
  const [nearest] = why.cosines;
  if (nearest.cosine >= why.unknown_below) {
    const others = " It and other photos resemble each other more than any class. The nearest is ";
    return says(h("strong", {}, "Unknown"), ":", others, strong(nearest.label), ` with a cosine of ${decimal(nearest.cosine)}.`);
  }
  const numbers = ` with a cosine of ${decimal(nearest.cosine)}; a label needs ${decimal(why.unknown_below)}.`;
  return says(h("strong", {}, "Unknown"), ": not like any class. The nearest is ", strong(nearest.label), numbers);
}

/** What the photo would be if nothing pulled, where that is something else. */
function unpulled({ label, label_unpulled: other }) {
  return other && other !== label ? [" At α = β = 0, where nothing pulls, it would be ", strong(other), "."] : [];
}

function verdictOnSupport(photo) {
  const { name } = classOf(photo.class);
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
    const fill = h("span", { class: `fill ${lookNamed(label)}` });
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
