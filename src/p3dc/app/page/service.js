/** All calls of the service; nothing else in the page fetches. */

/** A request that the service refused, with its message, status and code; `failures` lists files and reasons. */
export class Refused extends Error {
  constructor(message, status, code, failures = []) {
    super(message);
    this.status = status;
    this.code = code;
    this.failures = failures;
  }
}

/** The service cannot be reached. */
export class Unreachable extends Error {}

let authorise = async () => {};

/** What to do when a call answers 401: resolves when the session is open. */
export function onUnauthorised(how) {
  authorise = how;
}

const sleep = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

async function call(method, path, { json, body, type } = {}) {
  const headers = json ? { "Content-Type": "application/json" } : type ? { "Content-Type": type } : {};
  for (;;) {
    let answer;
    try {
      answer = await fetch(`/v1/${path}`, { method, headers, body: json ? JSON.stringify(json) : body });
    } catch {
      throw new Unreachable("The service does not answer.");
    }
    if (answer.status === 401 && path !== "session") await authorise();
    else if (answer.status === 503) await sleep(Number(answer.headers.get("Retry-After")) || 1);
    else if (answer.ok) return answer;
    else throw await refusal(answer);
  }
}

async function refusal(answer) {
  const { error = {} } = await answer.json().catch(() => ({}));
  const message = error.message ?? `The service answered with status ${answer.status}.`;
  return new Refused(message, answer.status, error.code, error.failures ?? []);
}

const data = async (...request) => (await call(...request)).json();
const at = (point) => (point ? `?alpha=${point.alpha}&beta=${point.beta}` : "");

export const thumbnail = (id) => `/v1/photos/${encodeURIComponent(id)}/thumbnail`;

export const original = (id) => `/v1/photos/${encodeURIComponent(id)}/original`;

export const getProject = () => data("GET", "project");
export const getView = (point) => data("GET", `view${at(point)}`);
/** Labels by the taught photos alone, which takes less time. */
export const getRoughView = () => data("GET", "view?pile=false");
export const getLeaveOneOut = (point) => data("GET", `leave-one-out${at(point)}`);
export const getExplanation = (id) => data("GET", `photos/${id}/explanation`);

/** Make a class, empty or of photos of the project. */
export const createClass = (name, photos = []) => data("POST", "classes", { json: { name, photos } });
/** Find or make a class as part of a drop. */
export const findClass = (name, drop) => data("POST", `classes?drop=${drop}`, { json: { name } });
export const renameClass = (id, name) => data("PATCH", `classes/${id}`, { json: { name } });
export const deleteClass = (id) => data("DELETE", `classes/${id}`);

export const changePhoto = (id, change) => data("PATCH", `photos/${id}`, { json: change });
/** Move photos, `{id, class}`; those whose class is null go to a class to be made where `newClass` is its name. */
export const movePhotos = (moves, newClass) => data("PATCH", "photos", { json: { moves, new_class: newClass } });
export const deletePhotos = (ids) => data("POST", "deletions", { json: { ids } });
export const setUnknownBelow = (below) => data("PUT", "unknown", { json: { below } });
export const clearPhotos = () => data("DELETE", "photos");

/** Send photos of a drop, `{key, file, name}`, to a class, or to be labelled where `classId` is null. */
export function sendPhotos(classId, drop, photos) {
  const body = new FormData();
  for (const { key, file, name } of photos) {
    body.append("images", file, name);
    body.append("keys", key);
  }
  return data("POST", `${classId ? `classes/${classId}/examples` : "photos"}?drop=${drop}`, { body });
}

/** The labels of pictures that do not join the project. */
export function classify(file) {
  const body = new FormData();
  body.append("images", file, file.name);
  return data("POST", "classify", { body });
}

export const setPoint = (point) => data("PUT", "point", { json: point });
export const clearPoint = () => data("DELETE", "point");
export const undo = () => data("POST", "undo");
export const redo = () => data("POST", "redo");
export const loadExampleSet = () => data("POST", "drawings");
export const openSession = (token) => call("POST", "session", { json: { token } });

export const getModel = async () => (await call("GET", "model")).blob();
export const putModel = (file) => data("PUT", "model", { body: file, type: "application/octet-stream" });
export const getLabels = async () => (await call("GET", "labels")).blob();
/** The address of the photos in class folders. */
export const archive = "/v1/archive";
export const keepOriginals = (keep) => data("PUT", "originals", { json: { keep } });

export const getProjects = () => data("GET", "projects");
/** Open a project, and make it if there is none of that name. */
export const openProject = (name) => data("POST", "projects", { json: { name } });

/** Where the service tells of changes: an event "revision" with {revision, project} at once and at each change. */
export const listen = () => new EventSource("/v1/events");
