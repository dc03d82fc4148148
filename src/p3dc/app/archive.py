"""A zip of photos in folders by their labels, written as it is sent."""

import io
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from zipfile import ZIP_STORED, ZipFile, ZipInfo

PIECE = 2**20
MOST_CHARACTERS = 100
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that Windows does not allow."""


def safe_name(name: str) -> str:
    """Return a name that is one part of a path on every system."""
    shown = "".join("_" if c in '<>:"/\\|?*' or unicodedata.category(c)[0] == "C" else c for c in name)
    path = PurePosixPath(shown.strip(". "))
    stem, ending = path.stem[:MOST_CHARACTERS].rstrip(". "), path.suffix[:20]
    return f"_{stem}{ending}" if not stem or RESERVED.fullmatch(stem) else f"{stem}{ending}"


def archive_names(photos: Iterable[tuple[str, str]]) -> list[str]:
    """Name the files of photos, each of a label and a path: a folder for each label, and no name twice.

    Examples
    --------
    >>> from p3dc.app.archive import archive_names
    >>> archive_names([("robin", "garden/a.jpg"), ("robin", "park/A.jpg"), ("../wren", "a.jpg")])
    ['robin/a.jpg', 'robin/A (2).jpg', '_wren/a.jpg']
    """
    folders: dict[str, str] = {}
    taken: set[str] = set()
    names = []
    for label, path in photos:
        if label not in folders:
            folders[label] = _free(safe_name(label), "", taken)
        names.append(_free(safe_name(path.rpartition("/")[2]), f"{folders[label]}/", taken))
    return names


def _free(name: str, folder: str, taken: set[str]) -> str:
    """Return a name that is not taken, whatever its case, and take it."""
    path, number = PurePosixPath(name), 1
    found = folder + name
    while found.casefold() in taken:
        number += 1
        found = f"{folder}{path.stem} ({number}){path.suffix}"
    taken.add(found.casefold())
    return found


def zip_pieces(files: Iterable[tuple[str, Path]]) -> Iterator[bytes]:
    """Yield a zip of files, each of a name and its place, in pieces; one that is gone by then is left out."""
    sink = _Sink()
    with ZipFile(sink, "w", ZIP_STORED) as archive:
        for name, path in files:
            try:
                content = path.open("rb")
            except FileNotFoundError:
                continue
            with content, archive.open(ZipInfo(name), "w", force_zip64=True) as entry:
                while piece := content.read(PIECE):
                    entry.write(piece)
                    yield sink.taken()
            yield sink.taken()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """A file that is only written to, and handed on."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: object) -> int:
        self._pieces.append(bytes(piece))  # type: ignore[call-overload]
        return len(self._pieces[-1])

    def taken(self) -> bytes:
        """Return what was written since the last time."""
        found = b"".join(self._pieces)
        self._pieces.clear()
        return found
