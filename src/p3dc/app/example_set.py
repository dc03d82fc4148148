"""Pictures to try the page with: drawings of five garden birds, and of two things that are none of them."""

from importlib.resources import files
from typing import NamedTuple
from zipfile import ZipFile


class ExamplePhoto(NamedTuple):
    """A picture as a WebP file; its label is None if it is to be labelled."""

    name: str
    label: str | None
    content: bytes


def example_set() -> list[ExamplePhoto]:
    """Read five pictures of each of five birds, then those to be labelled: two of each bird, and two unknown things.

    Examples
    --------
    >>> from p3dc.app.example_set import example_set
    >>> pictures = example_set()
    >>> pictures[2].name, pictures[2].label, len(pictures)
    ('robin 3.webp', 'robin', 37)
    """
    with (files("p3dc") / "data" / "example-photos.zip").open("rb") as file, ZipFile(file) as archive:
        entries = ((*entry.rpartition("/"), archive.read(entry)) for entry in archive.namelist())
        return [ExamplePhoto(name, label or None, content) for label, _, name, content in entries]
