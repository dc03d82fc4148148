"""What the service takes, and how it says no."""

from dataclasses import dataclass
from typing import Any

from fastapi import HTTPException

MEGABYTE = 2**20


@dataclass(frozen=True)
class Limits:
    """How much is taken.

    Attributes
    ----------
    files : int
        Images in one request.
    bytes : int
        Of one request.
    model_bytes : int
        Of a model file.
    json_bytes : int
        Of a request without files.
    pixels : int
        Of one image.
    requests : int
        At once; more are asked to come again.
    seconds : float
        Without a byte of a request that is being sent; all of it may take ten times as long.
    photos, classes : int
        In the project.
    name : int
        Characters of a name.
    """

    files: int = 50
    bytes: int = 64 * MEGABYTE
    model_bytes: int = 512 * MEGABYTE
    json_bytes: int = MEGABYTE // 16
    pixels: int = 50_000_000
    requests: int = 64
    seconds: float = 30.0
    photos: int = 2000
    classes: int = 100
    name: int = 100


class Refusal(HTTPException):
    """A request that is turned down.

    Parameters
    ----------
    status : int
    code : str
        A word for programs.
    message : str
        A sentence or two for people.
    headers : dict, optional
    **more
        What else the answer tells.
    """

    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(status, message, headers)
        self.body = {"error": {"code": code, "message": message, **more}}


def busy() -> Refusal:
    """Ask to come again."""
    return Refusal(503, "busy", "Too many requests at once. Try again in a second.", {"Retry-After": "1"})


def too_large(limit: int) -> Refusal:
    """Say how much a request may hold."""
    size = f"{limit // MEGABYTE} MB" if limit >= MEGABYTE else f"{limit // 1024} kB"
    return Refusal(413, "too_large", f"The request is larger than {size}. Send less at once.")


def missing(what: str, identity: str) -> Refusal:
    """Say that something is not there."""
    return Refusal(404, "not_found", f"There is no {what} {identity!r}. It may have been deleted.")


def conflict(message: str) -> Refusal:
    """Say that the project does not allow it as it is."""
    return Refusal(409, "conflict", message)


def invalid(message: str, **more: Any) -> Refusal:
    """Say that a value cannot be used."""
    return Refusal(422, "invalid", message, **more)
