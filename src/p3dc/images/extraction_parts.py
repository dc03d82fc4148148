"""One part of an extraction: which files it covers, whether it exists, how it is made.

Part k covers ``part_rows`` files from file k · part_rows on. Its metadata record what made it, which files it covers
and which of them failed. It appears whole or not at all, in a folder as in a store, and every process writes the same
rows, so that a part is either complete or is made again, by any process and any number of times.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import count, islice
from typing import Any

import numpy as np
from PIL import Image

from p3dc._arrays import Progress
from p3dc._validation import check_count
from p3dc.errors import InputError
from p3dc.images.backbones.backbone import Backbone, n_cores
from p3dc.images.decoding import ImageError, read_image
from p3dc.images.embedding import embed_images
from p3dc.images.shards import is_stored
from p3dc.images.sources import ImageFile, readable
from p3dc.io.parquet import open_parquet, write_parquet
from p3dc.io.store import Location, StoreError, writing

FACTS_KEY = b"p3dc.extraction"

STORE_READERS = 8
"""Threads that read from a store for each one that reads from disk: nearly all of their time, they wait."""
VERSION = 1

Failure = tuple[str, str]
"""The key of an image and why it has no features."""

Maker = dict[str, Any]
"""What makes features: backbone, preprocessing, rows of a part."""


def maker_of(backbone: Backbone, part_rows: int) -> Maker:
    """Describe what must be equal in all parts of a folder."""
    return {
        "version": VERSION,
        "backbone": {"name": backbone.name, "digest": backbone.digest, "n_features": backbone.n_features},
        "preprocessing": json.loads(backbone.preprocessing.to_json()),
        "part_rows": part_rows,
    }


def in_parts(files: Iterable[ImageFile], part_rows: int) -> Iterator[tuple[int, list[ImageFile]]]:
    """Split files into numbered parts, with one part in memory at a time."""
    check_count("part_rows", part_rows, 1)
    remaining = iter(files)
    for number in count():
        part = list(islice(remaining, part_rows))
        if not part:
            return
        yield number, part


def part_path(folder: Location, number: int) -> Location:
    """Return the path of a part."""
    return folder / f"part-{number:06}.parquet"


def kept_failures(path: Location, files: list[ImageFile], maker: Maker) -> list[Failure] | None:
    """Return the failures of an existing part, or None if it is missing or its files have changed since."""
    import pyarrow as pa

    if not path.exists():
        return None
    try:
        with open_parquet(path) as part:
            facts = json.loads(part.schema_arrow.metadata[FACTS_KEY])
            made_by, failures = dict(facts["maker"]), [(str(key), str(why)) for key, why in facts["failures"]]
            unchanged = facts["contents"] == _contents_digest(files)
            n_rows, same = part.metadata.num_rows, facts["files"] == _listing_digest(files)
            ids = [] if same else part.read(["id"])["id"].to_pylist()
    except StoreError:
        raise
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise InputError(f"{path} is damaged or no part of an extraction. Remove it and start again.") from None
    _check_maker(path.parent, made_by, maker)
    if not same:
        raise InputError(_changed(path, {*ids, *dict(failures)}, {file.key for file in files}))
    if not unchanged:
        return None
    if n_rows + len(failures) != len(files):
        raise InputError(f"{path} is damaged: it has {n_rows} rows. Remove it and start again.")
    return failures


def make_part(
    path: Location,
    files: list[ImageFile],
    maker: Maker,
    backbone: Backbone,
    *,
    batch: int = 32,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Failure]:
    """Extract the files of one part, write it and return its failures."""
    contents = _contents_digest(files)
    features = np.empty((len(files), backbone.n_features), np.float32)
    kept: list[ImageFile] = []
    failures: list[Failure] = []

    def read(file: ImageFile) -> Image.Image:
        if readable(file.path) != str(file.path):
            raise ImageError("Its name is not UTF-8 text. Rename it.")
        return read_image(file.path, short_side=backbone.preprocessing.short_side)

    if is_stored(files[0].path):
        workers = STORE_READERS * (n_cores() if workers is None else workers)
    with closing(embed_images(files, read, backbone, batch=batch, workers=workers)) as results:
        for file, result in results:
            if isinstance(result, ImageError):
                failures.append((file.key, str(result)))
            else:
                features[len(kept)] = result
                kept.append(file)
            if progress is not None:
                progress(len(kept) + len(failures), len(files))
    facts = {"maker": maker, "files": _listing_digest(files), "contents": contents, "failures": failures}
    labels = np.array([file.label or "" for file in kept], dtype=object)
    keys = np.array([file.key for file in kept], dtype=object)
    with writing(path) as part:
        write_parquet(part, [(features[: len(kept)], labels, keys)], extraction=facts)
    return failures


def _contents_digest(files: list[ImageFile]) -> str:
    """Hash the sizes and modification times of files, to notice a file that changed after it was read."""
    stamps: list[tuple[int, int] | None] = []
    for file in files:
        try:
            status = file.path.stat()
            stamps.append((status.st_size, status.st_mtime_ns))
        except OSError:
            stamps.append(None)
    return hashlib.sha256(json.dumps(stamps).encode()).hexdigest()


def _listing_digest(files: list[ImageFile]) -> str:
    rows = [[file.key, file.label] for file in files]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _check_maker(folder: Location, found: Maker, maker: Maker) -> None:
    for what in maker:
        if found.get(what) != maker[what]:
            raise InputError(
                f"{folder} holds features of another {what.replace('_', ' ')}: {_brief(found.get(what))}, not "
                f"{_brief(maker[what])}. Use the same, or give a new folder."
            )


def _brief(fact: Any) -> str:
    if isinstance(fact, dict) and {"name", "digest"} <= set(fact):
        return f"{fact['name']} ({str(fact['digest'])[:12]})"
    return json.dumps(fact)


def _changed(path: Location, before: set[str], now: set[str]) -> str:
    changes = [
        f"{sorted(keys)[0]} {verb}" + (f", like {len(keys) - 1:,} more" if len(keys) > 1 else "")
        for keys, verb in ((now - before, "is new"), (before - now, "is gone"))
        if keys
    ]
    what = " and ".join(changes) or "the same files have other labels or another order"
    return (
        f"{path.parent} was extracted from another list of images: in {path.name}, {what}. "
        "Give the same images, or a new folder."
    )
