"""Reasons to refuse a request. A plain :class:`~p3dc.errors.InputError` is a value that cannot be used."""

from collections.abc import Sequence
from typing import NamedTuple

from p3dc.errors import InputError
from p3dc.images.decoding import ImageError


class NotFoundError(InputError):
    """There is no class or photo with this id."""

    def __init__(self, kind: str, identity: str) -> None:
        super().__init__(f"There is no {kind} {identity!r}. It may have been deleted.")


class ConflictError(InputError):
    """The project does not allow the change in its present state."""


class UndoneError(ConflictError):
    """More photos of a drop that has been undone."""


class FailedImage(NamedTuple):
    """An image that cannot be used, and why."""

    name: str
    error: ImageError


class UnusableImagesError(InputError):
    """None of the images that were sent can be used."""

    def __init__(self, failures: Sequence[FailedImage]) -> None:
        super().__init__(f"{failures[0].name}: {failures[0].error}")
        self.failures = failures
