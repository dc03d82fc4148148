/** A colour and a marker for each class. Hues go round by the golden angle, so that no two of 100 classes are the same. */

const GOLDEN_ANGLE = 137.508;
const FIRST = 255;
const LIGHT = { lightness: [0.48, 0.4, 0.36, 0.52], chroma: 0.13 };
const DARK = { lightness: [0.82, 0.72, 0.68, 0.87], chroma: 0.115 };
const MOST = 100;

/** Markers within a circle of radius 1, for those who do not tell colours by hue. */
const MARKERS = {
  circle: Array.from({ length: 16 }, (_, i) => [Math.sin((i * Math.PI) / 8), -Math.cos((i * Math.PI) / 8)]),
  square: [[-0.85, -0.85], [0.85, -0.85], [0.85, 0.85], [-0.85, 0.85]],
  triangle: [[0, -1.1], [1.05, 0.8], [-1.05, 0.8]],
  diamond: [[0, -1.15], [1.15, 0], [0, 1.15], [-1.15, 0]],
  cross: [[-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4], [1.1, 0.4], [0.4, 0.4], [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4], [-1.1, -0.4], [-0.4, -0.4]],
  drop: [[0, 1.1], [1.05, -0.8], [-1.05, -0.8]],
};
const NAMES = Object.keys(MARKERS);

/** Names of CSS classes for the class at a place; for no class where it is null. */
export const look = (place) => (place == null ? "c-none" : `c${place % MOST} m-${marker(place)}`);
export const marker = (place) => NAMES[(place ?? 0) % NAMES.length];

/** The outline of a marker as the data of an SVG path. */
export const outline = (name, radius) =>
  `M${MARKERS[name].map(([x, y]) => `${(radius * x).toFixed(2)} ${(radius * y).toFixed(2)}`).join("L")}Z`;

function colour(place, { lightness, chroma }) {
  const hue = (FIRST + GOLDEN_ANGLE * place) % 360;
  return `oklch(${lightness[place % lightness.length]} ${chroma} ${hue.toFixed(1)})`;
}

function polygon(points) {
  const per = (value) => `${(50 + 43 * value).toFixed(1)}%`;
  return `polygon(${points.map(([x, y]) => `${per(x)} ${per(y)}`).join(", ")})`;
}

/** Adds the rules of `look` to the page. */
export function addColours() {
  const colours = Array.from({ length: MOST }, (_, place) =>
    `.c${place} { --own: light-dark(${colour(place, LIGHT)}, ${colour(place, DARK)}); }`);
  const markers = NAMES.map((name) => `.m-${name} { --marker: ${polygon(MARKERS[name])}; }`);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync([...colours, ...markers].join("\n"));
  document.adoptedStyleSheets.push(sheet);
}
