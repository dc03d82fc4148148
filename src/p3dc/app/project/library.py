"""The projects of a folder, by their names; by default in the folder where the system keeps a user's data."""

import json
import os
import sqlite3
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from p3dc.app.errors import ConflictError
from p3dc.app.project.project import Project
from p3dc.app.project.store import FILE
from p3dc.errors import InputError

MOST_PROJECTS = 200
MOST_CHARACTERS = 60
FORBIDDEN = '<>:"/\\|?*'
"""Characters that no folder is called by on some system."""


class Entry(NamedTuple):
    """A project: how many photos and classes it has, None where it cannot be read now, and when it was changed."""

    name: str
    photos: int | None
    classes: int | None
    changed: datetime


class Library:
    """A folder of projects, and how one of them is opened."""

    def __init__(self, folder: Path, open_folder: Callable[[Path], Project]) -> None:
        self.folder, self._open = folder, open_folder

    def open(self, name: str) -> Project:
        """Open a project, or make it."""
        path = self.folder / check_name(name)
        if not path.exists() and len(self.entries()) >= MOST_PROJECTS:
            raise ConflictError(f"There are {MOST_PROJECTS} projects already, which is the most. Delete one first.")
        return self._open(path)

    def entries(self) -> list[Entry]:
        """List the projects, the last changed first."""
        found = []
        for file in self.folder.glob(f"*/{FILE}"):
            changed = datetime.fromtimestamp(file.stat().st_mtime, UTC)
            found.append(Entry(file.parent.name, *_sizes(file), changed))
        return sorted(found, key=lambda entry: entry.changed, reverse=True)


def check_name(name: str) -> str:
    """Return the name of a project as that of a folder, or refuse it."""
    tidy = " ".join(name.split())
    if not tidy or len(tidy) > MOST_CHARACTERS or tidy[0] == "." or tidy[-1] == "." or not tidy.isprintable():
        raise InputError(f"A project has a name of 1 to {MOST_CHARACTERS} characters, without a dot at its ends.")
    if set(tidy) & set(FORBIDDEN):
        raise InputError(f"The name of a project has none of {FORBIDDEN}. Choose another one.")
    return tidy


def data_folder(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Return the folder of the user's projects."""
    home = Path.home()
    if platform == "win32":
        base = Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        base = Path(environment.get("XDG_DATA_HOME") or "")
        base = base if base.is_absolute() else home / ".local" / "share"
    return base / "p3dc" / "projects"


def _sizes(file: Path) -> tuple[int | None, int | None]:
    """Count the photos and classes of a project that is not open."""
    query = "SELECT state FROM step, fact WHERE fact.name = 'current' AND step.number = CAST(fact.value AS INTEGER)"
    try:
        database = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=0)
        try:
            state = json.loads(database.execute(query).fetchone()[0])
            return len(state["photos"]), len(state["classes"])
        finally:
            database.close()
    except (sqlite3.Error, LookupError, TypeError, ValueError):
        return None, None
