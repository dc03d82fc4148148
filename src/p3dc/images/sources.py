"""List images: from a folder for each class, a flat folder, or a CSV."""

import csv
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from p3dc.errors import InputError
from p3dc.io.atomic import damaged

ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif", ".heic", ".heif"})

Entry = tuple[str, str, bool]
"""An entry of a folder: its sort key, its path from the root, and whether it is a folder."""


@dataclass(frozen=True, slots=True)
class ImageFile:
    """One image on disk."""

    path: Path
    key: str  # its path from the root, with slashes, as text that can be printed and saved
    label: str | None  # its class, if known


def list_folder(root: str | os.PathLike[str], skipped: Counter[str] | None = None) -> Iterator[ImageFile]:
    """List the images of a folder, sorted by key, without opening any.

    Each folder directly below the root is a class, with everything below it. If the images lie directly in the root,
    they have no classes. Hidden names and files without the extension of an image are skipped. Mistakes are reported
    at once; images are listed one by one, and only the names of one folder at a time are held in memory.

    Parameters
    ----------
    root : path
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
    folder = Path(root)
    if not folder.is_dir():
        raise InputError(f"{readable(folder)} is not a folder. Give a folder of images.")
    skipped = Counter() if skipped is None else skipped
    top = _entries(folder, "", skipped)
    loose = [entry for entry in top if not entry[2]]
    classes = [entry for entry in top if entry[2]]
    within = _walk(folder, classes, skipped)
    first = next(within, None)
    if loose and first is not None:
        raise InputError(
            f"{readable(folder)} has images of its own, {readable(loose[0][1])} for example, as well as folders with "
            f"images, {readable(classes[0][1])} for example. Put each image into the folder of its class, or all of "
            "them into one folder."
        )
    if loose:
        return (_image(folder, relative, labelled=False) for _, relative, _ in loose)
    if first is None:
        raise InputError(
            f"{readable(folder)} holds no images{_describe(skipped)}. Images end in {', '.join(sorted(ENDINGS))}."
        )
    return (_image(folder, relative, labelled=True) for relative in chain([first], within))


def list_images(path: str | os.PathLike[str], skipped: Counter[str] | None = None) -> Iterator[ImageFile]:
    """List the images of a CSV or, one by one, those of a folder."""
    return iter(list_csv(path)) if Path(path).suffix.lower() == ".csv" else list_folder(path, skipped)


def readable(name: str | os.PathLike[str]) -> str:
    r"""Escape the bytes of a file's name that are not UTF-8, so that the name can be printed and saved.

    Examples
    --------
    >>> import os
    >>> print(readable(os.fsdecode(b"caf\xe9.jpg")))
    caf\xe9.jpg
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _image(root: Path, relative: str, *, labelled: bool) -> ImageFile:
    key = readable(relative)
    return ImageFile(root / relative, key, key.partition("/")[0] if labelled else None)


def _walk(root: Path, classes: list[Entry], skipped: Counter[str]) -> Iterator[str]:
    """Yield the paths of the images below the folders of classes, in order."""
    for top in classes:
        seen: set[tuple[int, int]] = set()  # a link may lead back up, so each real folder counts once in a class
        stack = [top]
        while stack:
            _, relative, is_folder = stack.pop()
            if not is_folder:
                yield relative
                continue
            try:
                status = (root / relative).stat()
            except OSError as error:
                raise _unreadable(root / relative, error) from None
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                stack += reversed(_entries(root, relative, skipped))


def _entries(root: Path, relative: str, skipped: Counter[str]) -> list[Entry]:
    """List the folders and images of one folder in the order of their keys; count other files by extension."""
    found: list[Entry] = []
    try:
        with os.scandir(root / relative) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith(".") or name == "__MACOSX":
                    continue
                path = f"{relative}/{name}" if relative else name
                _, dot, last = name.rpartition(".")
                ending = (dot + last).lower() if dot else ""
                if _is_folder(entry):
                    found.append((name + "/", path, True))  # with the slash, folders sort like the keys of their files
                elif ending in ENDINGS:
                    found.append((name, path, False))
                else:
                    skipped[ending] += 1
    except OSError as error:
        raise _unreadable(root / relative, error) from None
    return sorted(found)


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


def list_csv(path: str | os.PathLike[str]) -> list[ImageFile]:
    r"""Read the images that a CSV names, in its order.

    Parameters
    ----------
    path : path
        A CSV in UTF-8 with a header. The column ``path`` is required; relative paths start at the CSV's folder. The
        column ``label`` is optional, and its cells may be empty. Other columns are ignored.

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
    table = Path(path)
    if not table.is_file():
        raise InputError(f"{readable(table)} is not a file. Give a CSV with the columns path and label.")
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            return _read_rows(table, file)
    except UnicodeDecodeError:
        raise InputError(f"{readable(table)} is not UTF-8 text. Save the CSV as UTF-8.") from None
    except (OSError, csv.Error) as error:
        raise damaged(readable(table), error) from None


def _read_rows(table: Path, file: Iterable[str]) -> list[ImageFile]:
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
        images.append(ImageFile(table.parent / written, key, label or None))
    if not images:
        raise InputError(f"{readable(table)} names no images. Add a line for each of them.")
    return images


def _key(folder: Path, written: str) -> str:
    """Name an image by its path from the CSV's folder, or by its full path if it is elsewhere."""
    path = Path(os.path.normpath(written))
    if path.is_absolute() and path.is_relative_to(folder.absolute()):
        path = path.relative_to(folder.absolute())
    return path.as_posix()
