"""List the images of a zip, of a tar shard in the layout of WebDataset, or of Parquet in that of Hugging Face datasets.

A listing has, for each image, where it is, its name in the shard, and its class if that is known.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from p3dc.errors import InputError
from p3dc.io.archives import MAX_BYTES, Member, tar_members, zip_members
from p3dc.io.atomic import damaged
from p3dc.io.parquet import open_parquet
from p3dc.io.store import Location, Stat, StoreError, StorePath

MAX_CLASS_BYTES = 1000
"""Bytes of a ``.cls`` member, which names a class."""


@dataclass(frozen=True, slots=True)
class ParquetImage:
    """An image in a row of a Parquet file."""

    shard: Location
    column: str
    group: int  # its row group
    row: int  # in that row group

    def __str__(self) -> str:
        return f"{self.shard} row {self.row} of row group {self.group}"

    def stat(self) -> Stat:
        """Return a size and a time that change when the file does."""
        found = self.shard.stat()
        return Stat(found.st_size, found.st_mtime_ns)

    def exists(self) -> bool:
        """Whether the file exists."""
        return self.shard.exists()

    def absolute(self) -> "ParquetImage":
        """Return the image in the file's absolute path."""
        return ParquetImage(self.shard.absolute(), self.column, self.group, self.row)

    def read_bytes(self) -> bytes:
        """Read the image; the last row groups that were read stay in memory."""
        with _reading:  # or every thread would read the same row group
            images = _row_group(self.shard, self.stat(), self.column, self.group)
        content = images[self.row].as_py()
        if content is None:
            raise InputError("Its row has no bytes, only a path. Write the data set with its images embedded.")
        return bytes(content)


Place: TypeAlias = Location | Member | ParquetImage
"""Where an image is: a file, an object of a store, a member of an archive or a row of a Parquet file."""

Listed = tuple[Place, str, str | None]
"""An image of a shard: where it is, its name in the shard, its class."""


def is_stored(place: Place) -> bool:
    """Whether an image is in a store, not on this machine."""
    holder = place.archive if isinstance(place, Member) else place.shard if isinstance(place, ParquetImage) else place
    return isinstance(holder, StorePath)


def list_zip(path: Location, is_image: Callable[[str], bool], skipped: Counter[str]) -> Iterator[Listed]:
    """List the images of a zip as those of a folder: a folder for each class, or images alone.

    A zip of one folder is taken as that folder.
    """
    images = [member for member in zip_members(path) if _wanted(member.name, is_image, skipped)]
    folders = [PurePosixPath(member.name).parts[:-1] for member in images]
    inside = len({parts[:1] for parts in folders}) == 1 and all(len(parts) > 1 for parts in folders)
    labels = [parts[inside] if len(parts) > inside else None for parts in folders]
    loose = next((member for member, label in zip(images, labels, strict=True) if label is None), None)
    if loose is not None and any(labels):
        raise InputError(
            f"{path} has images in folders and images beside them, {loose.name} for example. Put each image into the "
            "folder of its class, or all of them into one folder."
        )
    for member, label in zip(images, labels, strict=True):
        yield member, member.name, label


def list_tar(path: Location, is_image: Callable[[str], bool], skipped: Counter[str]) -> Iterator[Listed]:
    """List the images of a tar in its order.

    Neighbours whose names agree up to the first dot are one sample. Its class is the text of the member that ends in
    ``.cls``, else the first folder of the image's name.
    """
    for _, sample in groupby(tar_members(path), key=lambda member: _sample_of(member.name)):
        members = list(sample)
        named = next((member for member in members if member.name.endswith(".cls")), None)
        label = None if named is None else _class_name(path, named)
        for member in members:
            if member is not named and _wanted(member.name, is_image, skipped):
                folder, slash, _ = member.name.removeprefix("./").partition("/")
                yield member, member.name.removeprefix("./"), label or (folder if slash else None)


def has_images(path: Location) -> bool:
    """Return whether a Parquet file has a column of images."""
    with open_parquet(path) as file:
        return bool(_image_columns(file.schema_arrow))


def list_parquet(path: Location) -> Iterator[Listed]:
    """List the images of a Parquet file; each is named by the number of its row."""
    with open_parquet(path) as file:
        image, label, names = _columns(path, file.schema_arrow)
        n_before = 0
        for group in range(file.num_row_groups):
            n_rows = file.metadata.row_group(group).num_rows
            labels = [None] * n_rows if label is None else _labels(path, file, group, label, names)
            for row, name in enumerate(labels):
                yield ParquetImage(path, image, group, row), str(n_before + row), name
            n_before += n_rows


def _wanted(name: str, is_image: Callable[[str], bool], skipped: Counter[str]) -> bool:
    parts = PurePosixPath(name).parts
    if any(part.startswith(".") or part == "__MACOSX" for part in parts):
        return False
    if not is_image(parts[-1]):
        skipped[PurePosixPath(name).suffix.lower()] += 1
        return False
    return True


def _sample_of(name: str) -> str:
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(".")[0]


def _class_name(path: Location, member: Member) -> str | None:
    try:
        if member.size > MAX_CLASS_BYTES:
            raise ValueError("it is long")
        return member.read_bytes().decode().strip() or None
    except (UnicodeDecodeError, ValueError) as error:
        if isinstance(error, StoreError):
            raise
        raise InputError(f"{path} has a member {member.name} that is no name of a class. Write it again.") from None


def _columns(path: Location, schema: Any) -> tuple[str, str | None, list[str] | None]:
    """Return the column of images, that of labels, and the names of the classes."""
    images = _image_columns(schema)
    if len(images) != 1:
        raise InputError(
            f"{path} has {len(images)} columns of images, struct<bytes, path>; its columns are "
            f"{', '.join(schema.names)}. Write it with one."
        )
    features = _features(schema)
    classes = {name: fact["names"] for name, fact in features.items() if fact.get("_type") == "ClassLabel"}
    label = "label" if "label" in schema.names else next(iter(classes), None) if len(classes) == 1 else None
    return images[0], label, classes.get(label or "")


def _image_columns(schema: Any) -> list[str]:
    import pyarrow as pa

    def holds_images(kind: Any) -> bool:
        if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
            return False
        kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
        return any(accepts(kind.field("bytes").type) for accepts in kinds)

    return [column.name for column in schema if holds_images(column.type)]


def _features(schema: Any) -> dict[str, dict[str, Any]]:
    """Return what Hugging Face datasets wrote about the columns; nothing if it did not write the file."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {name: fact for name, fact in features.items() if isinstance(fact, dict)}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _labels(path: Location, file: Any, group: int, column: str, names: list[str] | None) -> list[str | None]:
    try:
        values = file.read_row_group(group, columns=[column])[column].to_pylist()
        if names is None:
            return [None if value is None else str(value) for value in values]
        return [None if value is None or value < 0 else str(names[value]) for value in values]
    except StoreError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise damaged(path, error) from None


_reading = threading.Lock()


@lru_cache(maxsize=2)
def _row_group(path: Location, stamp: Stat, column: str, group: int) -> Any:
    """Read the images of a row group."""
    import pyarrow.compute as pc

    with open_parquet(path) as file:
        size = file.metadata.row_group(group).total_byte_size
        if size > 16 * MAX_BYTES:
            raise StoreError(f"{path} has a row group of {size:,} bytes. Write it with smaller row groups.")
        try:
            images = file.read_row_group(group, columns=[f"{column}.bytes"])[column]
        except Exception as error:  # a damaged file can raise anything
            raise StoreError(str(damaged(path, error))) from None
    return pc.struct_field(images, "bytes")


LISTERS: dict[str, Callable[[Location, Callable[[str], bool], Counter[str]], Iterator[Listed]]] = {
    ".zip": list_zip,
    ".tar": list_tar,
    ".parquet": lambda path, is_image, skipped: list_parquet(path),
}
"""How to list a shard, by the ending of its name."""
