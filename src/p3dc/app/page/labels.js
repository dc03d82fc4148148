/** Where the names of classes go on the map, so that they cover each other and the photos as little as possible. */

const LETTER = 7.2;
const LINE = 16;
const GAP = 11;

/** Positions of a text next to a point: its anchor, and its offset. */
const WAYS = [
  { anchor: "start", x: GAP, y: 5 },
  { anchor: "end", x: -GAP, y: 5 },
  { anchor: "middle", x: 0, y: -GAP - 2 },
  { anchor: "middle", x: 0, y: GAP + 12 },
  { anchor: "start", x: GAP - 3, y: -GAP + 2 },
  { anchor: "end", x: -GAP + 3, y: -GAP + 2 },
  { anchor: "start", x: GAP - 3, y: GAP + 8 },
  { anchor: "end", x: -GAP + 3, y: GAP + 8 },
];

function boxOf([x, y], way, name) {
  const width = LETTER * name.length + 4;
  const left = x + way.x - { start: 0, middle: width / 2, end: width }[way.anchor];
  return { left, right: left + width, top: y + way.y - LINE + 3, bottom: y + way.y + 3 };
}

function overlap(a, b) {
  const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
  const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  return width > 0 && height > 0 ? width * height : 0;
}

const covered = (box, others) => others.reduce((sum, other) => sum + overlap(box, other), 0);

const around = (boxes) => ({
  left: Math.min(...boxes.map(({ left }) => left)),
  right: Math.max(...boxes.map(({ right }) => right)),
  top: Math.min(...boxes.map(({ top }) => top)),
  bottom: Math.max(...boxes.map(({ bottom }) => bottom)),
});

const area = ({ left, right, top, bottom }) => (right - left) * (bottom - top);

/** A name that other names and classes would cover to this share is left out until its class is pointed at. */
const CROWDED = 0.1;

const last = new Map();

/**
 * Choose the position `at` of the name of each item, `{id, place, name}`, without covering `points`.
 * A name without room is `crowded`. The last position is kept unless another is clearly better, so that names stand still while points move.
 */
export function placeLabels(items, points, width, height) {
  const taken = items.map(({ place: [x, y] }) => ({ left: x - 8, right: x + 8, top: y - 8, bottom: y + 8 }));
  const small = points.map(([x, y]) => ({ left: x - 4, right: x + 4, top: y - 4, bottom: y + 4 }));
  items.forEach((item, own) => {
    const boxes = WAYS.map((way) => boxOf(item.place, way, item.name));
    const reach = around(boxes);
    const others = taken.filter((other, i) => i !== own && overlap(reach, other) > 0);
    const dots = small.filter((dot) => overlap(reach, dot) > 0);
    const costs = boxes.map((box) => {
      const outside = Math.max(0, -box.left, box.right - width, -box.top, box.bottom - height);
      return 1000 * outside + 3 * covered(box, others) + covered(box, dots);
    });
    const before = last.get(item.id);
    const best = costs.indexOf(Math.min(...costs));
    const chosen = before !== undefined && costs[before] < costs[best] + 60 ? before : best;
    last.set(item.id, chosen);
    item.at = WAYS[chosen];
    item.crowded = covered(boxes[chosen], others) > CROWDED * area(boxes[chosen]);
    if (!item.crowded) taken.push(boxes[chosen]);
  });
}
