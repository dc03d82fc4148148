"""One part of an extraction: which files it covers, whether it exists, how it is made.

Part k covers ``part_rows`` files from file k · part_rows on. Its metadata record what made it, which files it covers
and which of them failed. It appears whole or not at all, in a folder as in a store, and every process writes the same
rows, so that a part is either complete or is made again, by any process and any number of times.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import count, islice
from typing import Any

import numpy as np
from PIL import Image

from p3dc._arrays import Progress
from p3dc._validation import check_count
from p3dc.errors import InputError
from p3dc.images.backbones.backbone import Backbone, n_cores
from p3dc.images.decoding import ImageError, read_image
from p3dc.images.embedding import Embedded, embed_views
from p3dc.images.shards import is_stored
from p3dc.images.sources import ImageFile, readable
from p3dc.images.views import CENTRE, views_of
from p3dc.io.parquet import WideBatch, open_parquet, write_parquet
from p3dc.io.store import Location, StoreError, writing

FACTS_KEY = b"p3dc.extraction"

STORE_READERS = 8
"""Threads that read from a store for each one that reads from disk: nearly all of their time, they wait."""

MANY = 512
"""Images on this machine from which on they are read in processes beside an accelerator."""

VERSION = 1

Failure = tuple[str, str]
"""The key of an image and why it has no features."""

Maker = dict[str, Any]
"""What makes features: backbone, preprocessing, rows of a part, views, maps."""

LARGEST = float(np.finfo(np.float16).max)
"""Largest number of a feature map, which is kept in 16 bits."""

GROUP_BYTES = 2**26
"""Features, views and maps that are held in memory before they are written as a row group, at most."""


def maker_of(backbone: Backbone, part_rows: int, *, views: int = 1, maps: bool = False) -> Maker:
    """Describe what must be equal in all parts of a folder."""
    maker = {
        "version": VERSION,
        "backbone": {"name": backbone.name, "digest": backbone.digest, "n_features": backbone.n_features},
        "preprocessing": json.loads(backbone.preprocessing.to_json()),
        "part_rows": part_rows,
    }
    names = [view.name for view in views_of(views)]
    return maker | ({"views": names} if views > 1 else {}) | ({"maps": True} if maps else {})


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
            facts = json.loads(part.metadata.metadata[FACTS_KEY])
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
    batch: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Failure]:
    """Extract the files of one part, write it and return its failures."""
    views, with_maps = views_of(len(maker.get("views", ["centre"]))), "maps" in maker
    failures: list[Failure] = []
    facts = {
        "maker": maker,
        "files": _listing_digest(files),
        "contents": _contents_digest(files),
        "failures": failures,
    }

    options: dict[str, Any] = {"views": views, "maps": with_maps, "batch": batch, "workers": workers}
    if is_stored(files[0].path):
        options["workers"] = STORE_READERS * (n_cores() if workers is None else workers)
    else:
        options["processes"] = backbone.is_accelerated and len(files) >= MANY
    read = partial(_read, short_side=backbone.preprocessing.short_side)

    def batches() -> Iterator[WideBatch]:
        kept: list[tuple[ImageFile, Embedded]] = []
        n_bytes = n_done = 0
        with closing(embed_views(files, read, backbone, **options)) as results:
            for file, result in results:
                if isinstance(result, ImageError):
                    failures.append((file.key, str(result)))
                elif result.maps is not None and np.abs(result.maps).max() > LARGEST:
                    failures.append((file.key, "Its feature maps are too large for 16 bits. Leave it out."))
                else:
                    kept.append((file, result))
                    n_bytes += sum(array.nbytes for array in result if array is not None)
                n_done += 1
                if progress is not None:
                    progress(n_done, len(files))
                if n_bytes > GROUP_BYTES:
                    yield _as_batch(kept, backbone.n_features)
                    kept, n_bytes = [], 0
        if kept or len(failures) == len(files):
            yield _as_batch(kept, backbone.n_features)

    with writing(path) as part:
        write_parquet(part, batches(), last={"extraction": facts})
    return failures


def _read(file: ImageFile, short_side: int) -> Image.Image:
    if readable(file.path) != str(file.path):
        raise ImageError("Its name is not UTF-8 text. Rename it.")
    return read_image(file.path, short_side=short_side)


def _as_batch(kept: list[tuple[ImageFile, Embedded]], n_features: int) -> WideBatch:
    """Put rows together: features, labels, keys and, where there are any, views and maps."""
    found = [each for _, each in kept]
    features = np.array([each.features for each in found], np.float32).reshape(-1, n_features)
    labels = np.array([file.label or "" for file, _ in kept], dtype=object)
    keys = np.array([file.key for file, _ in kept], dtype=object)
    others: dict[str, Any] = {}
    if found and len(found[0].views) > 1:
        others["views"] = np.stack([each.views for each in found])
    if found and found[0].maps is not None:
        others["maps"] = np.array([each.maps for each in found], np.float16)
    return features, labels, keys, others


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
    for what in {**maker, **found}:
        if found.get(what) != maker.get(what):
            raise InputError(
                f"{folder} holds features {_difference(what, found.get(what), maker.get(what))}. "
                "Use the same, or give a new folder."
            )


def _difference(what: str, found: Any, wanted: Any) -> str:
    if what == "views":
        return f"of {len(found or [CENTRE])} views, not of {len(wanted or [CENTRE])}"
    if what == "maps":
        return "with maps, not without" if found else "without maps, not with"
    return f"of another {what.replace('_', ' ')}: {_brief(found)}, not {_brief(wanted)}"


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
