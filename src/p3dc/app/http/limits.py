"""Limits of requests. Those of a project are :class:`~p3dc.app.project.state.ProjectLimits`."""

from dataclasses import dataclass

MEGABYTE = 2**20


@dataclass(frozen=True)
class RequestLimits:
    """The most that requests may ask for.

    Attributes
    ----------
    files : int
        Images in one request.
    bytes, model_bytes, json_bytes : int
        Bytes of a request with images, with a model file, and with neither.
    pixels : int
        Pixels of one image.
    requests : int
        Requests at the same time; others are asked to try again.
    seconds : float
        Seconds between two bytes of a request; all of it may take ten times as long.
    """

    files: int = 50
    bytes: int = 64 * MEGABYTE
    model_bytes: int = 512 * MEGABYTE
    json_bytes: int = MEGABYTE // 16
    pixels: int = 50_000_000
    requests: int = 64
    seconds: float = 30.0
