/** Where points with weights α and β stand in the drawing of the triangle, and back. */

export const CORNERS = { itself: [150, 42], sample: [38, 236], task: [262, 236] };

/** Where a point stands in the drawing. */
export function placeOf({ alpha, beta }) {
  const weights = { itself: 1 - alpha - beta, sample: alpha, task: beta };
  const along = (axis) => Object.keys(CORNERS).reduce((sum, name) => sum + weights[name] * CORNERS[name][axis], 0);
  return [along(0), along(1)];
}

/** The point of the triangle nearest to a place in the drawing, with α and β in hundredths. */
export function pointAt([x, y]) {
  const { itself, sample, task } = CORNERS;
  const down = (y - itself[1]) / (sample[1] - itself[1]);
  const right = (x - itself[0]) / (task[0] - itself[0]);
  return rounded(nearest([1 - down, (down - right) / 2, (down + right) / 2]));
}

/** The nearest weights that are not negative and sum to one. */
function nearest(weights) {
  const sorted = [...weights].sort((a, b) => b - a);
  let sum = 0;
  let shift = 0;
  sorted.forEach((weight, i) => {
    sum += weight;
    if (weight > (sum - 1) / (i + 1)) shift = (sum - 1) / (i + 1);
  });
  return weights.map((weight) => Math.max(0, weight - shift));
}

export const hundredths = (value) => Math.round(100 * value) / 100;
function rounded([, alpha, beta]) {
  const most = hundredths(1 - hundredths(alpha));
  return { alpha: hundredths(alpha), beta: Math.min(hundredths(beta), most) };
}
