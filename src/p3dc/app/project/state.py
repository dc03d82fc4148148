"""The state of a project, and every change that a user can make to it: pure functions that return the next state."""

import secrets
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from p3dc._validation import check_share
from p3dc.adaptive.settings import check_weights
from p3dc.app.errors import ConflictError, NotFoundError
from p3dc.errors import InputError
from p3dc.images.classifier import UNKNOWN


@dataclass(frozen=True)
class ProjectLimits:
    """The most photos and classes of a project, and characters of a name."""

    photos: int = 2000
    classes: int = 100
    name: int = 100


@dataclass(frozen=True)
class Class:
    """A class and its name."""

    id: str
    name: str


@dataclass(frozen=True)
class Photo:
    """A photo, its name and the id of its class; None for one to be labelled."""

    id: str
    name: str
    label: str | None


Found = TypeVar("Found", Class, Photo)


@dataclass(frozen=True)
class State:
    """What a project holds."""

    classes: tuple[Class, ...] = ()  # in the user's order
    photos: tuple[Photo, ...] = ()  # in the order in which they were added
    point: tuple[float, float] | None = None  # α and β; None to choose them for the task
    priors: str = "backbone"  # or "none", or the name of stored priors
    reject: float | None = None  # share of photos of other classes to call unknown

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

    def photo(self, identity: str) -> Photo:
        """Find a photo."""
        return _find(self.photos, "photo", identity)

    def add_class(self, name: str, limits: ProjectLimits) -> tuple["State", Class]:
        """Add a class without photos."""
        if len(self.classes) >= limits.classes:
            raise ConflictError(f"There are {limits.classes} classes already, which is the most. Delete one first.")
        added = Class(new_id(), self._class_name(name, limits))
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
        """Add photos, each to its class or to those to be labelled."""
        added = tuple(photos)
        for label in {photo.label for photo in added} - {None}:
            self.class_of(str(label))
        if len(self.photos) + len(added) > limits.photos:
            raise ConflictError(
                f"There are {len(self.photos):,} photos, and a project holds {limits.photos:,}. Delete some first."
            )
        return replace(self, photos=(*self.photos, *added))

    def move_photo(self, identity: str, label: str | None) -> "State":
        """Move a photo to a class, or back to those to be labelled."""
        old = self.photo(identity)
        if label is not None and label not in self.names:
            raise InputError(f"There is no class {label!r} to move the photo to. It may have been deleted.")
        if old.label == label:
            return self
        moved = replace(old, label=label)
        return replace(self, photos=(*(each for each in self.photos if each.id != identity), moved))

    def rename_photo(self, identity: str, name: str, limits: ProjectLimits) -> "State":
        """Rename a photo."""
        new = replace(self.photo(identity), name=photo_name(name, limits))
        return replace(self, photos=tuple(new if each.id == identity else each for each in self.photos))

    def delete_photo(self, identity: str) -> "State":
        """Delete a photo."""
        self.photo(identity)
        return replace(self, photos=tuple(each for each in self.photos if each.id != identity))

    def clear(self) -> "State":
        """Delete all photos to be labelled."""
        return replace(self, photos=tuple(photo for photo in self.photos if photo.label is not None))

    def at(self, point: tuple[float, float] | None) -> "State":
        """Set α and β inside the triangle, or choose them for the task where no point is given."""
        if point is not None:
            check_weights(*point, extrapolate=False)
        return replace(self, point=point)

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
            "photos": [[each.id, each.name, each.label] for each in self.photos],
            "point": self.point,
            "priors": self.priors,
            "reject": self.reject,
        }

    @classmethod
    def from_json(cls, written: dict[str, Any]) -> "State":
        """Read what :meth:`to_json` wrote, and refuse what it cannot have written."""
        point, reject = written["point"], written["reject"]
        state = cls(
            tuple(Class(_text(identity), _text(name)) for identity, name in written["classes"]),
            tuple(
                Photo(_text(identity), _text(name), None if label is None else _text(label))
                for identity, name, label in written["photos"]
            ),
            priors=_text(written["priors"]),
            reject=check_share("reject", reject),
        )
        for kind in (state.classes, state.photos):
            if len({each.id for each in kind}) < len(kind):
                raise ValueError("an id occurs twice")
        if not {photo.label for photo in state.photos} <= {None, *state.names}:
            raise ValueError("a photo is of a class that is missing")
        if point is None:
            return state
        alpha, beta = point
        return state.at((alpha, beta))


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
    """Return the last part of a path, without characters that cannot be shown."""
    last = _tidy(name.replace("\\", "/").rsplit("/", 1)[-1])
    return last[-limits.name :] or "photo"


def _tidy(text: str) -> str:
    """Replace control characters and lone surrogates by spaces, and runs of spaces by one."""
    shown = "".join(c if unicodedata.category(c) not in ("Cc", "Cs", "Co", "Cn") else " " for c in text)
    return " ".join(unicodedata.normalize("NFC", shown).split())
