/** Photos on the move from one list to another: a dragged photo takes the rest of its selection along. */

const PHOTOS = "application/x-p3dc-photos";

/** Make an element draggable; `idsOf()` returns the photos that go with it. */
export function draggable(element, idsOf) {
  element.draggable = true;
  element.addEventListener("dragstart", (event) => {
    const ids = idsOf();
    event.dataTransfer.setData(PHOTOS, JSON.stringify(ids));
    event.dataTransfer.effectAllowed = "move";
    if (ids.length > 1) event.dataTransfer.setDragImage(badge(ids.length), -8, -8);
    setTimeout(() => document.body.classList.add("dragging")); // a layout that changes at once would end the drag
  });
  element.addEventListener("dragend", () => document.body.classList.remove("dragging"));
}

/** How many photos are being dragged, next to the pointer. */
function badge(n) {
  const node = document.createElement("p");
  node.className = "drag-badge";
  node.textContent = `${n} photos`;
  document.body.append(node);
  setTimeout(() => node.remove());
  return node;
}

/** Whether photos of the page are being dragged. */
export const carriesPhotos = ({ types }) => types.includes(PHOTOS);

/** The photos that were dropped. */
export const photosDragged = (transfer) => JSON.parse(transfer.getData(PHOTOS) || "[]");
