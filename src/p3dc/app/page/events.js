/** Changes made elsewhere: the service tells of each; one window listens for all. */

import { listen } from "./service.js";
import { refreshSoon, state, watch } from "./store.js";

const POLL = 5000;
const CHANNEL = "p3dc-events";

const windows = new BroadcastChannel(CHANNEL);
windows.onmessage = ({ data }) => follow(data);

function follow({ revision, project }) {
  const { project: mine } = state;
  if (mine && (mine.revision !== revision || mine.name !== project)) refreshSoon();
}

/** Listen for ever; where the service tells nothing, ask it now and then. A browser opens few connections to a server. */
function follows() {
  return new Promise(() => {
    const connect = () => {
      const source = listen();
      source.addEventListener("revision", ({ data }) => {
        const told = JSON.parse(data);
        windows.postMessage(told);
        follow(told);
      });
      source.addEventListener("error", () => {
        refreshSoon(); // finds out whether the service answers
        if (source.readyState === EventSource.CLOSED) setTimeout(connect, POLL);
      });
    };
    connect();
  });
}

/** Begin once the project is there, which a token may have been needed for. */
export function listenForChanges() {
  let begun = false;
  watch(() => {
    if (begun) return;
    begun = true;
    if (navigator.locks) navigator.locks.request(CHANNEL, follows);
    else follows();
  });
}
