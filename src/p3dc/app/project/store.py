"""A project on disk: one SQLite file in a folder of its own.

Photos are stored as features and thumbnails. Every change is a step: one transaction, on disk before the request is
answered, so that a killed process leaves the whole step or nothing of it. Undo goes back to older steps.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from p3dc.app.project.state import State
from p3dc.errors import InputError

FILE = "project.sqlite"
VERSION = 2
APPLICATION = 0x70336463

SCHEMA = (
    "CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE photo (id TEXT PRIMARY KEY, features BLOB NOT NULL, thumbnail BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE priors (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE step (number INTEGER PRIMARY KEY, title TEXT NOT NULL, state TEXT NOT NULL, "
    "drop_id TEXT NOT NULL DEFAULT '')",
)
UPGRADES = {1: "ALTER TABLE step ADD COLUMN drop_id TEXT NOT NULL DEFAULT ''"}
"""What makes the tables of a version those of the next one."""


@dataclass(frozen=True, eq=False)
class Picture:
    """What is stored of a photo: its features and a thumbnail, a small JPEG."""

    features: npt.NDArray[np.float32]
    thumbnail: bytes


@dataclass(frozen=True)
class Step:
    """A state of the project, the title of the change that led to it, and the drop that made the change, if any."""

    number: int
    title: str
    state: State
    drop: str = ""


class StoreError(InputError):
    """A project that cannot be read or written."""


class Store:
    """The file of a project; without a folder it is in memory, and lost when the process ends."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        target = ":memory:" if folder is None else str(folder / FILE)
        with self._explained():
            self._database = sqlite3.connect(target, isolation_level=None, check_same_thread=False, timeout=0.5)
            try:
                for setting in ("trusted_schema = OFF", "cell_size_check = ON", "locking_mode = EXCLUSIVE"):
                    self._database.execute(f"PRAGMA {setting}")
                self._database.execute("PRAGMA synchronous = FULL")
                self._open()
            except BaseException:
                self.close()
                raise

    def _open(self) -> None:
        with self._transaction():
            application, version = (self._pragma(name) for name in ("application_id", "user_version"))
            tables = self._tables()
            if tables and application != APPLICATION:
                raise StoreError(f"{self._name} is the file of another program. Choose another folder.")
            if tables and not 1 <= version <= VERSION:
                raise StoreError(
                    f"{self._name} has version {version}, but this p3dc reads versions up to {VERSION}. Install the "
                    "p3dc that wrote it."
                )
            if tables and version < VERSION:
                for old in range(version, VERSION):
                    self._database.execute(UPGRADES[old])
                self._database.execute(f"PRAGMA user_version = {VERSION}")
                tables = self._tables()
            if tables and tables != set(SCHEMA):
                raise ValueError("its tables, views or triggers are not those of a project")
            if not tables:
                for statement in SCHEMA:
                    self._database.execute(statement)
                self._database.execute(f"PRAGMA application_id = {APPLICATION}")
                self._database.execute(f"PRAGMA user_version = {VERSION}")
        problem = self._database.execute("PRAGMA quick_check").fetchone()[0]
        if problem != "ok":
            raise ValueError(problem.splitlines()[-1])

    def _tables(self) -> set[str]:
        return {statement for (statement,) in self._database.execute("SELECT sql FROM sqlite_schema")}

    def read(self) -> tuple[list[Step], dict[str, Picture]]:
        """Read all steps, the oldest first, and all photos."""
        with self._explained():
            rows = self._database.execute("SELECT number, title, state, drop_id FROM step ORDER BY number").fetchall()
            steps = [Step(int(n), str(title), State.from_json(json.loads(text)), drop) for n, title, text, drop in rows]
            pictures = {
                str(identity): Picture(np.frombuffer(features, dtype="<f4"), bytes(thumbnail))
                for identity, features, thumbnail in self._database.execute("SELECT id, features, thumbnail FROM photo")
            }
            if not {photo.id for step in steps for photo in step.state.photos} <= set(pictures):
                raise ValueError("a photo is missing")
        return steps, pictures

    def record(
        self,
        facts: Mapping[str, object],
        steps: Iterable[Step] = (),
        added: Mapping[str, Picture] | None = None,
        dropped: Iterable[int] = (),
        gone: Iterable[str] = (),
        priors: Mapping[str, bytes] | None = None,
        idle: Iterable[str] = (),
    ) -> None:
        """Write facts, steps, photos and priors and delete dropped steps, gone photos and idle priors, all at once."""
        with self._explained(), self._transaction():
            run = self._database
            for identity, picture in (added or {}).items():
                content = np.asarray(picture.features, dtype="<f4").tobytes(), picture.thumbnail
                run.execute("INSERT INTO photo VALUES (?, ?, ?)", (identity, *content))
            run.executemany("INSERT INTO priors VALUES (?, ?)", (priors or {}).items())
            run.executemany("DELETE FROM priors WHERE name = ?", [(name,) for name in idle])
            run.executemany("DELETE FROM step WHERE number = ?", [(number,) for number in dropped])
            run.executemany("DELETE FROM photo WHERE id = ?", [(identity,) for identity in gone])
            for step in steps:
                written = json.dumps(step.state.to_json(), ensure_ascii=False)
                row = step.number, step.title, written, step.drop
                run.execute("INSERT OR REPLACE INTO step VALUES (?, ?, ?, ?)", row)
            for name, value in facts.items():
                run.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, str(value)))

    def fact(self, name: str) -> str | None:
        """Look up a fact."""
        with self._explained():
            found = self._database.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
            return None if found is None else str(found[0])

    def number(self, name: str) -> int:
        """Look up a fact that is a number; 0 if there is none."""
        with self._explained():
            return int(self.fact(name) or 0)

    def priors(self, name: str) -> bytes | None:
        """Read a stored file of priors."""
        with self._explained():
            found = self._database.execute("SELECT content FROM priors WHERE name = ?", (name,)).fetchone()
        return None if found is None else bytes(found[0])

    def kept_priors(self) -> set[str]:
        """Return the names of the stored priors."""
        with self._explained():
            return {str(name) for (name,) in self._database.execute("SELECT name FROM priors")}

    def close(self) -> None:
        """Close the file, so that other processes can open it."""
        self._database.close()

    def _pragma(self, name: str) -> int:
        return int(self._database.execute(f"PRAGMA {name}").fetchone()[0])

    @property
    def _name(self) -> str:
        return "the project in memory" if self.folder is None else str(self.folder / FILE)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:  # when the disk is full, SQLite has rolled back already
                self._database.execute("ROLLBACK")
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of SQLite into sentences."""
        try:
            yield
        except StoreError:
            raise
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise StoreError(f"{self._name} is open in another process. Stop that one first.") from None
            reason = f"cannot be read or written ({error}). Look at the disk and its permissions."
            raise StoreError(f"{self._name} {reason}") from None
        except (sqlite3.Error, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            reason = f"is damaged ({error}). Choose another folder, or bring back a copy."
            raise StoreError(f"{self._name} {reason}") from None
