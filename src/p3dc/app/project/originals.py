"""Photos as they were sent, one file each in the project's folder; kept only where the user agreed."""

import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from p3dc.app.errors import ConflictError
from p3dc.io.atomic import replacing

FOLDER = "originals"


class Originals:
    """The files of a project's photos, by the ids of the photos; a project in memory has none."""

    def __init__(self, project: Path | None, known: Iterable[str]) -> None:
        self.folder, self._lock = None if project is None else project / FOLDER, threading.Lock()
        there = {path.name for path in self.folder.iterdir()} if self.folder and self.folder.is_dir() else set()
        self.ids = there & {*known}
        self._delete(there - self.ids)  # written before a step that never was

    def path(self, identity: str) -> Path | None:
        """Return where the file of a photo is, if there is one."""
        return self.folder / identity if self.folder is not None and identity in self.ids else None

    def write(self, identity: str, content: IO[bytes]) -> None:
        """Write the file of a photo."""
        if self.folder is None:
            raise ConflictError("A project in memory keeps no photos. Serve it with --project to keep them.")
        self.folder.mkdir(exist_ok=True)
        content.seek(0)
        with replacing(self.folder / identity) as path, path.open("wb") as file:
            shutil.copyfileobj(content, file)
        with self._lock:
            self.ids = self.ids | {identity}

    def remove(self, identities: Iterable[str]) -> None:
        """Delete the files of photos that are gone."""
        with self._lock:
            gone = self.ids & {*identities}
            self.ids = self.ids - gone
        self._delete(gone)

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            if self.folder is not None:
                (self.folder / name).unlink(missing_ok=True)
