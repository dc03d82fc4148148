"""What commands read and write: no command writes over anything that it reads.

The parameters of a command say which they are. A path is read unless it is annotated as written, and text is read if it
is annotated so; :func:`command` checks them all before the command begins.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import wraps
from inspect import cleandoc
from pathlib import Path
from textwrap import indent
from typing import Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand

from p3dc.errors import InputError
from p3dc.io.atomic import FIGURE_FORMATS, check_folder
from p3dc.io.store import Location, StorePath, location

Command = TypeVar("Command", bound=Callable[..., None])


class Use(Enum):
    """What a command does with a parameter."""

    READS = "text that may name a file or a folder"
    READS_PHOTOS = "photos, folders of photos, or lists of photos"
    WRITES_FILE = "a file"
    WRITES_FIGURE = "a picture"
    WRITES_FOLDER = "a folder, here or in a store"


READ = (Use.READS, Use.READS_PHOTOS)


class _Command(TyperCommand):
    """A command whose help lists --help after its own options."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option under a heading of its own, which comes last."""
        option: Any = super().get_help_option(ctx)
        option.rich_help_panel = "Help"
        return option


def command(
    group: typer.Typer, name: str | None = None, *, example: str, page: str, panel: str | None = None
) -> Callable[[Command], Command]:
    """Register a command whose outputs are checked before it begins.

    Its help ends with an example and with the page of the documentation; ``panel`` is its heading among the commands.
    """

    def register(function: Command) -> Command:
        uses = _uses(function)

        @wraps(function)
        def checked(**arguments: Any) -> None:
            given: dict[Use, list[Location]] = {use: [] for use in Use}
            for parameter, use in uses.items():
                given[use] += _places(arguments[parameter])
            check_outputs(given)
            function(**arguments)

        paragraphs = cleandoc(function.__doc__ or "").split("\n\n")
        prose = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)  # Typer would keep its lines
        group.command(name, cls=_Command, help=prose, epilog=epilog(example, f"docs/{page}"), rich_help_panel=panel)(
            checked
        )
        return function

    return register


def epilog(example: str, page: str) -> str:
    """Return the end of a help text: lines to try, and where to read on."""
    return f"Example:\n\n{indent(example, '    ')}\n\nDocumentation: {page}"


def check_outputs(given: Mapping[Use, Iterable[Location]]) -> None:
    """Refuse outputs that cannot be written, or that would overwrite an input or one another."""
    inputs = {place: use is Use.READS_PHOTOS for use in READ for place in given.get(use, ())}
    taken: set[Location] = set()
    for use in (Use.WRITES_FIGURE, Use.WRITES_FILE, Use.WRITES_FOLDER):
        for out in given.get(use, ()):
            if use is not Use.WRITES_FOLDER:
                check_folder(str(out))
            if use is Use.WRITES_FIGURE and out.suffix not in FIGURE_FORMATS:
                raise InputError(f"{out} ends in {out.suffix!r}. Figures are written as .png, .svg or .pdf.")
            real = _real(out)
            if real in taken:
                raise InputError(f"{out} is to be written twice. Give each output a name of its own.")
            taken.add(real)
            for place, photos in inputs.items():
                _check_apart(out, place, photos=photos, folder=use is Use.WRITES_FOLDER)


def _uses(function: Callable[..., None]) -> dict[str, Use]:
    """Return what a command does with each of its paths."""
    found = {}
    for name, hint in get_type_hints(function, include_extras=True).items():
        marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Use)]
        if marks or "Path" in str(getattr(hint, "__origin__", "")):
            found[name] = marks[0] if marks else Use.READS
    return found


def _places(value: Any) -> list[Location]:
    values = value if isinstance(value, list | tuple) else [value]
    return [location(one) for one in values if one is not None]


def _real(place: Location) -> Location:
    return place if isinstance(place, StorePath) else Path(os.path.realpath(place))


def _check_apart(out: Location, place: Location, *, photos: bool, folder: bool) -> None:
    """Refuse an output that is an input, that lies among its files, or a folder of outputs that an input lies in."""
    if _real(out) == _real(place):
        raise InputError(f"{out} is to be written, but it is read as well. Give another name.")
    if folder:
        if _lies_in(place, out):
            raise InputError(f"{out} is to be written, but {place}, which is read, lies in it. Give another folder.")
    elif isinstance(out, Path) and isinstance(place, Path):
        old = _stat(out)
        if old is None:
            return
        for path in _files_read(place, photos=photos):
            found = _stat(path)
            if found is not None and os.path.samestat(found, old):
                raise InputError(f"{out} is to be written, but it is {path}, which is read. Give another name.")


def _stat(path: Path) -> os.stat_result | None:
    """Return what is known of a file, or None where there is none or its name cannot be one."""
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def _lies_in(inner: Location, outer: Location) -> bool:
    if isinstance(inner, Path) and isinstance(outer, Path):
        return _stat(inner) is not None and _real(outer) in Path(os.path.realpath(inner)).parents
    return str(inner).startswith(f"{outer}/")


def _files_read(place: Path, *, photos: bool) -> Iterator[Path]:
    """List the files that an input stands for: itself, those in its folder, those that a list of photos names."""
    yield place
    found = _stat(place)
    if found is None:
        return
    if stat.S_ISDIR(found.st_mode):
        files = (Path(above, name) for above, _, names in os.walk(place) for name in names)
        yield from (path for path in files if not photos or _holds_images(path))
    elif photos and place.suffix.lower() == ".csv":
        from p3dc.images.sources import list_csv

        yield from (image.path for image in list_csv(place) if isinstance(image.path, Path))
    elif place.suffix == ".onnx":
        yield place.with_suffix(".toml")  # its preprocessing, and below its weights
        yield from (path for path in place.parent.iterdir() if path.name.startswith(place.name))


def _holds_images(path: Path) -> bool:
    """Whether a file in a folder of photos ends like an image or a shard; others are not read."""
    from p3dc.images.shards import LISTERS
    from p3dc.images.sources import ENDINGS

    return path.suffix.lower() in ENDINGS | LISTERS.keys()
