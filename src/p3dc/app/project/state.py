"""The state of a project, and every change that a user can make to it: pure functions that return the next state."""

import math
import secrets
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from p3dc._validation import check_share
from p3dc.adaptive.settings import check_weights
from p3dc.app.errors import ConflictError, NotFoundError
from p3dc.errors import InputError
from p3dc.images.classifier import UNKNOWN

DRAWN_BIRDS = "drawn birds"
"""The name of the priors of the example set."""


@dataclass(frozen=True)
class ProjectLimits:
    """The most photos and classes of a project, and characters of the name of a class and of a photo."""

    photos: int = 2000
    classes: int = 100
    name: int = 100
    path: int = 300


@dataclass(frozen=True)
class Class:
    """A class and its name."""

    id: str
    name: str


@dataclass(frozen=True)
class Photo:
    """A photo, its name and the id of its class; None for one to be labelled.

    ``asked`` says whether it was ever to be labelled, ``key`` is its place in the drop that it came with, if any.
    """

    id: str
    name: str
    label: str | None
    asked: bool = False
    key: str = ""

    @property
    def drop(self) -> str:
        """The drop that the photo came with, or nothing."""
        return self.key.rpartition("-")[0]


Found = TypeVar("Found", Class, Photo)


@dataclass(frozen=True)
class State:
    """What a project holds; one that is empty does not have the priors of the example set."""

    classes: tuple[Class, ...] = ()  # in the user's order
    photos: tuple[Photo, ...] = ()  # in the order in which they were added
    point: tuple[float, float] | None = None  # α and β; None to choose them for the task
    priors: str = "backbone"  # or "none", those of the example set, or the name of stored priors
    reject: float | None = None  # share of photos of other classes to call unknown
    unknown_below: float | None = None  # the threshold of unknown; None to choose it for the task

    def __post_init__(self) -> None:
        if self.priors == DRAWN_BIRDS and not self.classes and not self.photos:
            object.__setattr__(self, "priors", "backbone")

    @property
    def to_label(self) -> list[Photo]:
        """The photos without a class, which are to be labelled."""
        return [photo for photo in self.photos if photo.label is None]

    @property
    def names(self) -> dict[str, str]:
        """The names of the classes by their ids."""
        return {each.id: each.name for each in self.classes}

    def class_of(self, identity: str) -> Class:
        """Find a class."""
        return _find(self.classes, "class", identity)

    def class_named(self, name: str) -> Class | None:
        """Find a class by its name, as far as spaces and characters that cannot be shown do not matter."""
        return next((each for each in self.classes if each.name == _tidy(name)), None)

    def photo(self, identity: str) -> Photo:
        """Find a photo."""
        return _find(self.photos, "photo", identity)

    def add_class(self, name: str, limits: ProjectLimits, identity: str | None = None) -> tuple["State", Class]:
        """Add a class without photos, with a new id unless one is given."""
        if len(self.classes) >= limits.classes:
            raise ConflictError(f"There are {limits.classes} classes already, which is the most. Delete one first.")
        added = Class(identity or new_id(), self._class_name(name, limits))
        return replace(self, classes=(*self.classes, added)), added

    def rename_class(self, identity: str, name: str, limits: ProjectLimits) -> "State":
        """Rename a class."""
        old = self.class_of(identity)
        new = replace(old, name=self._class_name(name, limits, old))
        return replace(self, classes=tuple(new if each == old else each for each in self.classes))

    def delete_class(self, identity: str) -> "State":
        """Delete a class with its photos."""
        self.class_of(identity)
        return replace(
            self,
            classes=tuple(each for each in self.classes if each.id != identity),
            photos=tuple(photo for photo in self.photos if photo.label != identity),
        )

    def add_photos(self, photos: Iterable[Photo], limits: ProjectLimits) -> "State":
        """Add photos, each to its class or to those to be labelled.

        Photos of one drop are kept in the order of their keys; one whose key is there already is left out.
        """
        there, added = {photo.key for photo in self.photos}, list[Photo]()
        for photo in photos:
            if not photo.key or photo.key not in there:
                there.add(photo.key)
                added.append(replace(photo, asked=photo.label is None))
        for label in {photo.label for photo in added} - {None}:
            self.class_of(str(label))
        if len(self.photos) + len(added) > limits.photos:
            raise ConflictError(
                f"There are {len(self.photos):,} photos, and a project holds {limits.photos:,}. Delete some first."
            )
        ordered = list(self.photos)
        for photo in added:
            siblings = ((n, each) for n, each in enumerate(ordered) if photo.key and each.drop == photo.drop)
            ordered.insert(next((n for n, each in siblings if each.key > photo.key), len(ordered)), photo)
        return replace(self, photos=tuple(ordered))

    def move_photos(self, moves: Mapping[str, str | None]) -> "State":
        """Move photos, each to a class or back to those to be labelled; all keep their place in the order."""
        for label in {*moves.values()} - {None, *self.names}:
            raise InputError(f"There is no class {label!r} to move the photo to. It may have been deleted.")
        moved = {photo.id: photo for photo in self.photos}
        for identity, label in moves.items():
            old = moved.get(identity) or self.photo(identity)
            moved[identity] = replace(old, label=label, asked=old.asked or label is None)
        return replace(self, photos=tuple(moved.values()))

    def rename_photo(self, identity: str, name: str, limits: ProjectLimits) -> "State":
        """Rename a photo."""
        new = replace(self.photo(identity), name=photo_name(name, limits))
        return replace(self, photos=tuple(new if each.id == identity else each for each in self.photos))

    def delete_photos(self, identities: Iterable[str]) -> "State":
        """Delete photos."""
        deleted = {self.photo(identity).id for identity in identities}
        return replace(self, photos=tuple(each for each in self.photos if each.id not in deleted))

    def clear(self) -> "State":
        """Delete all photos to be labelled."""
        return replace(self, photos=tuple(photo for photo in self.photos if photo.label is not None))

    def at(self, point: tuple[float, float] | None) -> "State":
        """Set α and β inside the triangle, or choose them for the task where no point is given."""
        if point is not None:
            check_weights(*point, extrapolate=False)
        return replace(self, point=point)

    def with_reject(self, share: float | None) -> "State":
        """Set what share of photos of other classes to call unknown."""
        if share is not None and any(each.name == UNKNOWN for each in self.classes):
            raise ConflictError(f"A class is called {UNKNOWN!r}, as photos of no class would be. Give it another name.")
        return replace(self, reject=share, unknown_below=None if share is None else self.unknown_below)

    def with_threshold(self, below: float | None) -> "State":
        """Set from what score on a photo belongs to one of the classes, or choose it for the task."""
        if self.reject is None:
            raise ConflictError("This project calls no photo unknown. Serve it with --reject to change that.")
        if below is not None and not math.isfinite(below):
            raise InputError(f"The threshold is {below}. Give a finite number.")
        return replace(self, unknown_below=below)

    def _class_name(self, name: str, limits: ProjectLimits, old: Class | None = None) -> str:
        tidy = _tidy(name)
        if not tidy:
            raise InputError("The name of the class is empty. Give one.")
        if len(tidy) > limits.name:
            raise InputError(f"The name has {len(tidy):,} characters, and {limits.name} are allowed. Shorten it.")
        if tidy == UNKNOWN and self.reject is not None:
            raise InputError(f"{UNKNOWN!r} is what photos of no class are called. Choose another name.")
        if any(each.name == tidy and each != old for each in self.classes):
            raise ConflictError(f"There is a class {tidy!r} already. Choose another name.")
        return tidy

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "classes": [[each.id, each.name] for each in self.classes],
            "photos": [[each.id, each.name, each.label, each.asked, each.key] for each in self.photos],
            "point": self.point,
            "priors": self.priors,
            "reject": self.reject,
            "unknown_below": self.unknown_below,
        }

    @classmethod
    def from_json(cls, written: dict[str, Any]) -> "State":
        """Read what :meth:`to_json` wrote, and refuse what it cannot have written."""
        point, reject = written["point"], written["reject"]
        state = cls(
            tuple(Class(_text(identity), _text(name)) for identity, name in written["classes"]),
            tuple(_read_photo(*photo) for photo in written["photos"]),
            priors=_text(written["priors"]),
            reject=check_share("reject", reject),
        )
        for kind in (state.classes, state.photos):
            if len({each.id for each in kind}) < len(kind):
                raise ValueError("an id occurs twice")
        if not {photo.label for photo in state.photos} <= {None, *state.names}:
            raise ValueError("a photo is of a class that is missing")
        if (below := written.get("unknown_below")) is not None:
            state = state.with_threshold(below)
        if point is None:
            return state
        alpha, beta = point
        return state.at((alpha, beta))


def _read_photo(identity: Any, name: Any, label: Any, asked: Any = None, key: Any = "") -> Photo:
    """Check what was written of a photo; projects of version 1 have neither ``asked`` nor ``key``."""
    known = None if label is None else _text(label)
    if asked not in (None, True, False):
        raise TypeError(f"{asked!r:.40} is neither true nor false")
    return Photo(_text(identity), _text(name), known, known is None if asked is None else asked, _text(key))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    value.encode()  # refuses half a character
    return value


def _find(among: Iterable[Found], kind: str, identity: str) -> Found:
    for each in among:
        if each.id == identity:
            return each
    raise NotFoundError(kind, identity)


def new_id() -> str:
    """Make a new unique id."""
    return secrets.token_hex(8)


def photo_name(name: str, limits: ProjectLimits) -> str:
    """Return a relative path without characters that cannot be shown; of an absolute path, the last part."""
    path = name.replace("\\", "/")
    parts = [tidy for part in path.split("/") if (tidy := _tidy(part)) not in ("", ".", "..")]
    is_absolute = path.startswith("/") or path[1:2] == ":"
    kept = "/".join(parts[-1:] if is_absolute else parts)
    return kept[-limits.path :].lstrip("/ ") or "photo"


def _tidy(text: str) -> str:
    """Replace control characters and lone surrogates by spaces, and runs of spaces by one."""
    shown = "".join(c if unicodedata.category(c) not in ("Cc", "Cs", "Co", "Cn") else " " for c in text)
    return " ".join(unicodedata.normalize("NFC", shown).split())
