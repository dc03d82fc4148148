"""What a project holds at one moment, and every change that a user can make: pure, each gives the next moment."""

import secrets
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from p3dc._validation import check_point
from p3dc.app.http.limits import Limits, conflict, invalid, missing
from p3dc.errors import InputError
from p3dc.images.classifier import UNKNOWN


@dataclass(frozen=True)
class Class:
    """A class and its name."""

    id: str
    name: str


@dataclass(frozen=True)
class Photo:
    """A photo, its name, and the class that it belongs to; None for one that is to be labelled."""

    id: str
    name: str
    label: str | None


@dataclass(frozen=True)
class State:
    """A project at one moment.

    Attributes
    ----------
    classes : tuple of Class
        In the user's order.
    photos : tuple of Photo
        In the order in which they came.
    point : (alpha, beta) or None
        The weights of both levels; None where they are chosen for the task.
    priors : str
        "backbone", "none" or the name of priors that are kept.
    reject : float or None
        Share of photos of other classes to call unknown.
    """

    classes: tuple[Class, ...] = ()
    photos: tuple[Photo, ...] = ()
    point: tuple[float, float] | None = None
    priors: str = "backbone"
    reject: float | None = None

    @property
    def to_label(self) -> list[Photo]:
        """The photos without a class."""
        return [photo for photo in self.photos if photo.label is None]

    @property
    def names(self) -> dict[str, str]:
        """The names of the classes by their ids."""
        return {each.id: each.name for each in self.classes}

    def class_of(self, identity: str) -> Class:
        """Find a class."""
        for each in self.classes:
            if each.id == identity:
                return each
        raise missing("class", identity)

    def photo(self, identity: str) -> Photo:
        """Find a photo."""
        for each in self.photos:
            if each.id == identity:
                return each
        raise missing("photo", identity)

    def add_class(self, name: str, limits: Limits) -> tuple["State", Class]:
        """Add a class without photos."""
        if len(self.classes) >= limits.classes:
            raise conflict(f"There are {limits.classes} classes already, which is the most. Delete one first.")
        added = Class(new_id(), self._class_name(name, limits))
        return replace(self, classes=(*self.classes, added)), added

    def rename_class(self, identity: str, name: str, limits: Limits) -> "State":
        """Give a class another name."""
        old = self.class_of(identity)
        new = replace(old, name=self._class_name(name, limits, old))
        return replace(self, classes=tuple(new if each == old else each for each in self.classes))

    def delete_class(self, identity: str) -> "State":
        """Take away a class with its photos."""
        self.class_of(identity)
        return replace(
            self,
            classes=tuple(each for each in self.classes if each.id != identity),
            photos=tuple(photo for photo in self.photos if photo.label != identity),
        )

    def add_photos(self, photos: Iterable[Photo], limits: Limits) -> "State":
        """Add photos to a class, or to be labelled."""
        added = tuple(photos)
        for label in {photo.label for photo in added} - {None}:
            self.class_of(str(label))
        if len(self.photos) + len(added) > limits.photos:
            raise conflict(
                f"There are {len(self.photos):,} photos, and a project holds {limits.photos:,}. Delete some first."
            )
        return replace(self, photos=(*self.photos, *added))

    def move_photo(self, identity: str, label: str | None) -> "State":
        """Put a photo into a class, or back among those to be labelled."""
        old = self.photo(identity)
        if label is not None and label not in self.names:
            raise invalid(f"There is no class {label!r} to move the photo to. It may have been deleted.")
        if old.label == label:
            return self
        moved = replace(old, label=label)
        return replace(self, photos=(*(each for each in self.photos if each.id != identity), moved))

    def rename_photo(self, identity: str, name: str, limits: Limits) -> "State":
        """Give a photo another name."""
        new = replace(self.photo(identity), name=photo_name(name, limits))
        return replace(self, photos=tuple(new if each.id == identity else each for each in self.photos))

    def delete_photo(self, identity: str) -> "State":
        """Take away a photo."""
        self.photo(identity)
        return replace(self, photos=tuple(each for each in self.photos if each.id != identity))

    def clear(self) -> "State":
        """Take away all photos that are to be labelled."""
        return replace(self, photos=tuple(photo for photo in self.photos if photo.label is not None))

    def at(self, point: tuple[float, float] | None) -> "State":
        """Set α and β, or let them be chosen."""
        return replace(self, point=None if point is None else checked_point(point))

    def _class_name(self, name: str, limits: Limits, old: Class | None = None) -> str:
        tidy = _tidy(name)
        if not tidy:
            raise invalid("The name of the class is empty. Give one.")
        if len(tidy) > limits.name:
            raise invalid(f"The name has {len(tidy):,} characters, and {limits.name} are allowed. Shorten it.")
        if tidy == UNKNOWN and self.reject is not None:
            raise invalid(f"{UNKNOWN!r} is what photos of no class are called. Choose another name.")
        if any(each.name == tidy and each != old for each in self.classes):
            raise conflict(f"There is a class {tidy!r} already. Choose another name.")
        return tidy

    def to_json(self) -> dict[str, Any]:
        """Write it down."""
        return {
            "classes": [[each.id, each.name] for each in self.classes],
            "photos": [[each.id, each.name, each.label] for each in self.photos],
            "point": self.point,
            "priors": self.priors,
            "reject": self.reject,
        }

    @classmethod
    def from_json(cls, written: dict[str, Any]) -> "State":
        """Read what :meth:`to_json` wrote."""
        point = written["point"]
        return cls(
            tuple(Class(str(identity), str(name)) for identity, name in written["classes"]),
            tuple(
                Photo(str(identity), str(name), None if label is None else str(label))
                for identity, name, label in written["photos"]
            ),
            None if point is None else (float(point[0]), float(point[1])),
            str(written["priors"]),
            None if written["reject"] is None else float(written["reject"]),
        )


def new_id() -> str:
    """Make a name that nothing else has."""
    return secrets.token_hex(8)


def checked_point(point: tuple[float, float]) -> tuple[float, float]:
    """Refuse a point outside the triangle."""
    try:
        check_point(*point, extrapolate=False)
    except InputError as error:
        raise invalid(str(error)) from None
    return point


def photo_name(name: str, limits: Limits) -> str:
    """Keep the last part of a path, without what cannot be shown."""
    last = _tidy(name.replace("\\", "/").rsplit("/", 1)[-1])
    return last[-limits.name :] or "photo"


def _tidy(text: str) -> str:
    """Drop control characters and halves of characters, and keep single spaces."""
    shown = "".join(c if unicodedata.category(c) not in ("Cc", "Cs", "Co", "Cn") else " " for c in text)
    return " ".join(unicodedata.normalize("NFC", shown).split())
