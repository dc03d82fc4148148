/** A point on the move: labels, map and accuracy follow it, and where it stops it is kept. */

import { getLeaveOneOut, getView, setPoint } from "./service.js";
import { act, changed, report, shownAccuracy, shownView, state } from "./store.js";

const PAUSE = 700;
const REST = 100;

/** Ask for the newest point only, one question at a time. */
function newest(ask, take) {
  let waiting = null;
  let busy = false;
  return async (point) => {
    waiting = point;
    if (busy) return;
    busy = true;
    try {
      while (waiting) {
        const asked = waiting;
        waiting = null;
        take(await ask(asked));
      }
    } catch (error) {
      report(error);
    } finally {
      busy = false;
    }
  };
}

const followWith = (name) => (answer) => {
  if (!state.preview) return;
  state.preview[name] = answer;
  changed();
};
const followView = newest(getView, followWith("view"));
const followAccuracy = newest(getLeaveOneOut, followWith("accuracy"));

let rest = null;

/** Accuracy is asked for where the point rests for a moment: labels would have to wait for it. */
function followAccuracySoon(point) {
  clearTimeout(rest);
  rest = setTimeout(followAccuracy, REST, point);
}

/** Move the point, without keeping it yet. */
export function move(point) {
  state.preview = { view: shownView(), accuracy: shownAccuracy(), ...point };
  changed();
  followView(point);
  followAccuracySoon(point);
}

/** Keep the point where it is now, once; resolves when it is kept. */
export function keep() {
  clearTimeout(pause);
  const moved = state.preview;
  if (moved) moved.kept ??= send(moved);
  return moved?.kept;
}

async function send(moved) {
  await act(() => setPoint({ alpha: moved.alpha, beta: moved.beta }));
  if (state.preview === moved) state.preview = null;
  changed();
}

let pause = null;

/** Keep the point when it has rested for a moment. */
export function keepSoon() {
  clearTimeout(pause);
  pause = setTimeout(keep, PAUSE);
}
