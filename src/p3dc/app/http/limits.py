"""Limits of requests. Those of a project are :class:`~p3dc.app.project.state.ProjectLimits`."""

from dataclasses import dataclass

MEGABYTE = 2**20


@dataclass(frozen=True)
class RequestLimits:
    """The most that requests may ask for."""

    files: int = 50  # images in one request
    bytes: int = 64 * MEGABYTE  # of a request with images
    model_bytes: int = 512 * MEGABYTE  # of a request with a model file
    json_bytes: int = MEGABYTE // 4  # of any other request
    pixels: int = 50_000_000  # of one image
    requests: int = 64  # being answered at the same time; others are asked to try again
    listeners: int = 64  # that wait for changes
    arriving: int = 1024  # whose bodies have not arrived yet
    seconds: float = 30.0  # between two bytes of a request; all of it may take ten times as long
    wrong_token_seconds: float = 0.5  # before a wrong token is answered, one at a time
    unknown_seconds: float = 3.0  # the same of a request that needs no token
