/** Reading what is dropped or chosen: files, folders and folders of class folders. */

const inOrder = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
const PHOTO = /^(image\/.*)?$/; // a kind that the browser does not know may be a photo too

/** "b/2.jpg" before "b/10.jpg": folder by folder, numbers by their value. */
function compare(a, b) {
  const [one, other] = [a.name.split("/"), b.name.split("/")];
  for (let i = 0; i < Math.min(one.length, other.length); i += 1) {
    const order = inOrder.compare(one[i], other[i]);
    if (order) return order;
  }
  return one.length - other.length;
}

/** The photos of a drop with their paths, `{file, name}`, in natural order; in folders other files are left out. */
export async function filesOf({ items }) {
  const files = [...items].filter(({ kind }) => kind === "file");
  const entries = files.map((item) => item.webkitGetAsEntry() ?? item.getAsFile()); // now: items are gone after an await
  return (await Promise.all(entries.map((entry) => filesIn(entry)))).flat().sort(compare);
}

async function filesIn(entry, folder = "") {
  if (entry instanceof File) return [{ file: entry, name: entry.name }];
  const name = folder + entry.name;
  if (entry.isFile) {
    const file = await new Promise((take, fail) => entry.file(take, fail));
    return folder && !PHOTO.test(file.type) ? [] : [{ file, name }];
  }
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((take, fail) => reader.readEntries(take, fail)); // at most 100 a call
    if (!some.length) return (await Promise.all(found.map((inner) => filesIn(inner, `${name}/`)))).flat();
    found.push(...some.filter((inner) => !inner.name.startsWith(".")));
  }
}

/** The same of a folder that was chosen. */
export const filesOfFolder = (files) =>
  [...files]
    .map((file) => ({ file, name: file.webkitRelativePath }))
    .filter(({ file, name }) => PHOTO.test(file.type) && !/(^|\/)\./.test(name))
    .sort(compare);

/**
 * The photos with the `folder` that each would be taught as, or null where they do not lie in two class folders or more.
 * Folders around the class folders, which all photos share, are no classes.
 */
export function inClassFolders(found) {
  const paths = found.map(({ name }) => name.split("/").slice(0, -1));
  const at = (depth) => new Set(paths.map((path) => path[depth]));
  let depth = 0;
  while (at(depth).size === 1 && !at(depth).has(undefined)) depth += 1;
  if (at(depth).size < 2 || at(depth).has(undefined)) return null;
  return found.map((photo, i) => ({ ...photo, folder: paths[i][depth] }));
}
