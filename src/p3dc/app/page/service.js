/** All calls of the service; nothing else in the page fetches. */

/** A request that the service refused, with its message; `failures` lists files and reasons. */
export class Refused extends Error {
  constructor(message, failures = []) {
    super(message);
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
  return new Refused(error.message ?? `The service answered with status ${answer.status}.`, error.failures ?? []);
}

const data = async (...request) => (await call(...request)).json();
const at = (point) => (point ? `?alpha=${point.alpha}&beta=${point.beta}` : "");

export const thumbnail = (id) => `/v1/photos/${encodeURIComponent(id)}/thumbnail`;

export const getProject = () => data("GET", "project");
export const getView = (point) => data("GET", `view${at(point)}`);
export const getLeaveOneOut = (point) => data("GET", `leave-one-out${at(point)}`);
export const getExplanation = (id) => data("GET", `photos/${id}/explanation`);

/** Make a class, empty or of photos of the project. */
export const createClass = (name, photos = []) => data("POST", "classes", { json: { name, photos } });
export const renameClass = (id, name) => data("PATCH", `classes/${id}`, { json: { name } });
export const deleteClass = (id) => data("DELETE", `classes/${id}`);

export const changePhoto = (id, change) => data("PATCH", `photos/${id}`, { json: change });
export const deletePhoto = (id) => data("DELETE", `photos/${id}`);
export const clearPhotos = () => data("DELETE", "photos");

/** Send files to a class, or to be labelled where `classId` is null. */
export function sendPhotos(classId, files) {
  const body = new FormData();
  for (const file of files) body.append("images", file, file.name);
  return data("POST", classId ? `classes/${classId}/examples` : "photos", { body });
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
