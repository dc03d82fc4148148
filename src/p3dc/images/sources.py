"""List images: of a folder for each class, a flat folder, a CSV, or shards; on this machine or in a store."""

import csv
import io
import os
import posixpath
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from p3dc.errors import InputError
from p3dc.images.shards import LISTERS, Listed, Place
from p3dc.io.atomic import damaged
from p3dc.io.store import ADDRESS, Address, Location, Stat, StorePath, location

ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif", ".heic", ".heif"})

LISTED_AHEAD = 8
"""Shards of a store that are listed at once."""

Entry = tuple[str, Stat | None]
"""An entry of a folder: its path from the root, which ends in a slash if it is a folder, and what a store lists of it.

A folder may have a million of them, so they are small, and sort like the keys of their files."""


@dataclass(frozen=True, slots=True)
class ImageFile:
    """One image."""

    path: Place
    key: str  # its path from the root, with slashes, as text that can be printed and saved
    label: str | None  # its class, if known


def list_folder(root: Address, skipped: Counter[str] | None = None) -> Iterator[ImageFile]:
    """List the images of a folder, sorted by key, without opening any.

    Each folder directly below the root is a class, with everything below it. If the images lie directly in the root,
    they have no classes. If the root holds shards instead of images, zip, tar or Parquet files, their images are
    listed, shard by shard. Hidden names and files without the extension of an image are skipped. Mistakes are reported
    at once; images are listed one by one, and only the names of one folder at a time are held in memory.

    Parameters
    ----------
    root : path
        A folder on this machine, or its ``s3://``, ``gs://`` or ``hf://`` address.
    skipped : Counter, optional
        Counts the skipped files by extension.

    Returns
    -------
    iterator of ImageFile

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from p3dc.images.sources import list_folder
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for name in ("wren/2.jpg", "wren/1.jpg", "robin/1.PNG", "robin/notes.txt"):
    ...         (Path(root) / name).parent.mkdir(exist_ok=True)
    ...         (Path(root) / name).touch()
    ...     [(image.key, image.label) for image in list_folder(root)]
    [('robin/1.PNG', 'robin'), ('wren/1.jpg', 'wren'), ('wren/2.jpg', 'wren')]
    """
    folder = location(root)
    if not folder.is_dir():
        raise InputError(f"{readable(folder)} is not a folder. Give a folder of images.")
    skipped = Counter() if skipped is None else skipped
    top = _entries(folder, "", skipped)
    loose = [entry for entry in top if not entry[0].endswith("/")]
    classes = [path.removesuffix("/") for path, _ in top if path.endswith("/")]
    within = _walk(folder, classes, skipped)
    first = next(within, None)
    if loose and first is not None:
        raise InputError(
            f"{readable(folder)} has images of its own, {readable(loose[0][0])} for example, as well as folders with "
            f"images, {readable(classes[0])} for example. Put each image into the folder of its class, or all of "
            "them into one folder."
        )
    if loose:
        return (_image(folder, entry, labelled=False) for entry in loose)
    if first is not None:
        return (_image(folder, entry, labelled=True) for entry in chain([first], within))
    shards = _shards(folder)
    if shards:
        skipped.subtract(_ending(shard.name) for shard in shards)
        skipped += Counter()  # removes what has become zero
        return _list_shards(folder, shards, skipped)
    raise _no_images(folder, skipped)


def list_images(path: Address, skipped: Counter[str] | None = None) -> Iterator[ImageFile]:
    """List the images of a CSV, of a zip, tar or Parquet file or of a folder, here or in a store."""
    place = location(path)
    ending = place.suffix.lower()
    if ending == ".csv":
        return iter(list_csv(place))
    if ending not in LISTERS or place.is_dir():
        return list_folder(place, skipped)
    shard = place if isinstance(place, Path) else place.looked_up()
    if not shard.is_file():
        raise InputError(f"{readable(shard)} does not exist. Give a folder of images, a CSV, or a shard.")
    return _list_shards(place, [shard], Counter() if skipped is None else skipped)


def _shards(folder: Location) -> list[Location]:
    """List the zip, tar and Parquet files of a folder in the order of their names."""
    found = sorted((name, listed) for name, listed, is_folder in _names(folder, "") if not is_folder)
    return [
        _at(folder, name, listed)
        for name, listed in found
        if _ending(name) in LISTERS and not name.startswith((".", "_"))
    ]


def _list_shards(given: Location, shards: list[Location], skipped: Counter[str]) -> Iterator[ImageFile]:
    """List the images of shards, with keys of the shard's and the image's name."""
    n_images = 0
    for shard, listed in _listed(shards, skipped):
        for place, name, label in listed:
            yield ImageFile(place, readable(f"{shard.name}/{name}"), None if label is None else readable(label))
            n_images += 1
    if not n_images:
        raise _no_images(given, skipped)


def _listed(shards: list[Location], skipped: Counter[str]) -> Iterator[tuple[Location, Iterable[Listed]]]:
    """List shards in order; in a store some are listed ahead, since each listing mostly waits."""

    def list_one(shard: Location, others: Counter[str]) -> Iterator[Listed]:
        return LISTERS[shard.suffix.lower()](shard, _is_image, others)

    if len(shards) == 1 or isinstance(shards[0], Path):
        yield from ((shard, list_one(shard, skipped)) for shard in shards)
        return
    with ThreadPoolExecutor(LISTED_AHEAD) as pool:
        remaining, waiting = iter(shards), deque[tuple[Location, Counter[str], Future[list[Listed]]]]()
        while True:
            for shard in islice(remaining, LISTED_AHEAD - len(waiting)):
                others: Counter[str] = Counter()
                waiting.append((shard, others, pool.submit(lambda *each: list(list_one(*each)), shard, others)))
            if not waiting:
                return
            shard, others, listed = waiting.popleft()
            yield shard, listed.result()
            skipped.update(others)


def _no_images(given: Location, skipped: Counter[str]) -> InputError:
    others = _describe(skipped)
    return InputError(f"{readable(given)} holds no images{others}. Images end in {', '.join(sorted(ENDINGS))}.")


def _is_image(name: str) -> bool:
    return _ending(name) in ENDINGS


def _ending(name: str) -> str:
    _, dot, last = name.rpartition(".")
    return (dot + last).lower() if dot else ""


def readable(name: object) -> str:
    r"""Escape the bytes of a file's name that are not UTF-8, so that the name can be printed and saved.

    Examples
    --------
    >>> import os
    >>> print(readable(os.fsdecode(b"caf\xe9.jpg")))
    caf\xe9.jpg
    """
    return os.fsencode(str(name)).decode("utf-8", "backslashreplace")


def _image(root: Location, entry: Entry, *, labelled: bool) -> ImageFile:
    relative, listed = entry
    key = readable(relative)
    return ImageFile(_at(root, relative, listed), key, key.partition("/")[0] if labelled else None)


def _at(root: Location, relative: str, listed: Stat | None) -> Location:
    return root / relative if listed is None else StorePath(f"{root}/{relative}", listed)


def _walk(root: Location, classes: list[str], skipped: Counter[str]) -> Iterator[Entry]:
    """Yield the images below the folders of classes, in order."""
    for top in classes:
        seen: set[tuple[int, int]] = set()  # a link may lead back up, so each real folder counts once in a class
        stack: list[Entry] = [(top + "/", None)]
        while stack:
            entry = stack.pop()
            relative = entry[0].removesuffix("/")
            if relative == entry[0]:
                yield entry
                continue
            if isinstance(root, Path):
                try:
                    status = (root / relative).stat()
                except OSError as error:
                    raise _unreadable(root / relative, error) from None
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
            stack += reversed(_entries(root, relative, skipped))


def _entries(root: Location, relative: str, skipped: Counter[str]) -> list[Entry]:
    """List the folders and images of one folder in the order of their keys; count other files by extension."""
    found: list[Entry] = []
    above = relative and relative + "/"
    for name, listed, is_folder in _names(root, relative):
        if name.startswith(".") or name == "__MACOSX":
            continue
        if is_folder:
            found.append((f"{above}{name}/", None))
        elif _is_image(name):
            found.append((above + name, listed))
        else:
            skipped[_ending(name)] += 1
    found.sort()
    return found


def _names(root: Location, relative: str) -> Iterator[tuple[str, Stat | None, bool]]:
    """List one folder: names, what a store lists of them, and which of them are folders."""
    if not isinstance(root, Path):
        folder = root / relative if relative else root
        yield from ((path.name, path.listed, is_folder) for path, is_folder in folder.entries())
        return
    try:
        with os.scandir(root / relative) as entries:
            yield from ((entry.name, None, _is_folder(entry)) for entry in entries)
    except OSError as error:
        raise _unreadable(root / relative, error) from None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _unreadable(folder: Path, error: OSError) -> InputError:
    return InputError(f"{readable(folder)} cannot be listed ({error.strerror}). Make it readable, or leave it out.")


def _describe(skipped: Counter[str]) -> str:
    if not skipped:
        return ""
    common = ", ".join(readable(ending) or "no ending" for ending, _ in skipped.most_common(3))
    return f", but {skipped.total():,} other files ({common})"


def list_csv(path: Address) -> list[ImageFile]:
    r"""Read the images that a CSV names, in its order.

    Parameters
    ----------
    path : path
        A CSV in UTF-8 with a header. The column ``path`` is required; relative paths start at the CSV's folder. The
        column ``label`` is optional, and its cells may be empty. Other columns are ignored. The CSV, and any of its
        paths, may be an address in a store.

    Returns
    -------
    list of ImageFile

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from p3dc.images.sources import list_csv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = (Path(folder) / "birds.csv").write_text("path,label\na.jpg,wren\nmore/b.jpg,\n")
    ...     [(image.key, image.label) for image in list_csv(Path(folder) / "birds.csv")]
    [('a.jpg', 'wren'), ('more/b.jpg', None)]
    """
    table = location(path)
    if not table.is_file():
        raise InputError(f"{readable(table)} is not a file. Give a CSV with the columns path and label.")
    try:
        return _read_rows(table, io.StringIO(table.read_bytes().decode("utf-8-sig"), newline=""))
    except UnicodeDecodeError:
        raise InputError(f"{readable(table)} is not UTF-8 text. Save the CSV as UTF-8.") from None
    except (OSError, csv.Error) as error:
        raise damaged(readable(table), error) from None


def _read_rows(table: Location, file: Iterable[str]) -> list[ImageFile]:
    rows = csv.reader(file, strict=True)
    header = [name.strip() for name in next(rows, [])]
    for name, least in (("path", 1), ("label", 0)):
        if not least <= header.count(name) <= 1:
            raise InputError(
                f"{readable(table)} has {header.count(name)} columns {name!r} in its first line: "
                f"{', '.join(header) or 'nothing'}. Name one column path and one label."
            )
    path_at, label_at = header.index("path"), header.index("label") if "label" in header else len(header)
    lines: dict[str, int] = {}
    images = []
    for row in rows:
        if not any(row):
            continue
        written = row[path_at] if path_at < len(row) else ""
        if not written or "\0" in written:
            raise InputError(f"{readable(table)} line {rows.line_num} has no path. Fill it in or remove the line.")
        key = _key(table.parent, written)
        if key in lines:
            raise InputError(
                f"{readable(table)} has {key} twice, in line {lines[key]} and line {rows.line_num}. Remove one of them."
            )
        lines[key] = rows.line_num
        label = row[label_at] if label_at < len(row) else ""
        images.append(ImageFile(_place(table.parent, written), key, label or None))
    if not images:
        raise InputError(f"{readable(table)} names no images. Add a line for each of them.")
    return images


def _place(folder: Location, written: str) -> Location:
    """Find an image that a CSV names."""
    if ADDRESS.match(written):
        return location(written)
    if isinstance(folder, Path):
        return folder / written
    scheme, _, inside = folder.address.partition("://")
    return StorePath(f"{scheme}://{posixpath.normpath(posixpath.join(inside, written)).lstrip('/')}")


def _key(folder: Location, written: str) -> str:
    """Name an image by its path from the CSV's folder, or by its full path if it is elsewhere."""
    if ADDRESS.match(written):
        return str(location(written)).removeprefix(f"{folder}/")
    path = Path(os.path.normpath(written))
    if isinstance(folder, Path) and path.is_absolute() and path.is_relative_to(folder.absolute()):
        path = path.relative_to(folder.absolute())
    return path.as_posix()
