"""Features of many images as a folder of Parquet parts, which an interrupted run continues.

Part k covers the files from k · part_rows on, always as many, so a part is there whole or is made again. Each part says
in its metadata what made it, which files it covers and which of them failed; nothing else is needed to continue.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from p3dc.checks import check_count
from p3dc.errors import InputError
from p3dc.files import check_folder, replacing, write_json
from p3dc.images.backbones import Backbone
from p3dc.images.listing import ImageFile, readable
from p3dc.images.pipeline import embed_images
from p3dc.images.reading import ImageError, read_image

FACTS_KEY = b"p3dc.extraction"
SUMMARY = "extraction.json"
VERSION = 1

Failure = tuple[str, str]
"""The key of an image and why it has no features."""


@dataclass(frozen=True)
class Extraction:
    """What an extraction came to.

    Attributes
    ----------
    folder : Path
        Where the parts are; :meth:`p3dc.FeatureSet.load` reads it.
    n_files : int
        How many images there were.
    n_kept : int
        How many of them an earlier run had done.
    failures : tuple of (key, sentence)
        The images without features, in order.
    """

    folder: Path
    n_files: int
    n_kept: int
    failures: tuple[Failure, ...]

    @property
    def n_rows(self) -> int:
        """How many images have features."""
        return self.n_files - len(self.failures)


def extract(
    files: Iterable[ImageFile],
    backbone: Backbone,
    out: str | os.PathLike[str],
    *,
    part_rows: int = 4096,
    batch: int = 32,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Extraction:
    """Write the features of images to a folder of Parquet parts, or finish a run that was interrupted.

    The columns are ``embedding``, ``label``, empty where there is none, and ``id``, the key of the file. The file
    ``extraction.json`` tells what made the features and what failed.

    Parameters
    ----------
    files : iterable of ImageFile
        The images, in a fixed order; read part by part.
    backbone : Backbone
        What makes the features.
    out : path
        The folder. It may be missing, empty, or left by a run over the same files with the same backbone.
    part_rows : int
        How many files a part covers. No more features than that are held in memory.
    batch, workers : int
        As in :func:`p3dc.images.pipeline.embed_images`.
    progress : callable, optional
        Called with the number of images done and the number of those that failed.

    Returns
    -------
    Extraction

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from p3dc import FeatureSet
    >>> from p3dc.images.backbones import load_backbone
    >>> from p3dc.images.extraction import extract
    >>> from p3dc.images.listing import list_folder
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     photos = Path(folder) / "photos"
    ...     for colour in ("navy", "olive"):
    ...         (photos / colour).mkdir(parents=True)
    ...         Image.new("RGB", (300, 260), colour).save(photos / colour / "plain.png")
    ...     done = extract(list_folder(photos), load_backbone(), Path(folder) / "features")
    ...     FeatureSet.load(done.folder)
    FeatureSet(2 rows, 1,280 features, 2 classes)
    >>> done.n_files, done.failures
    (2, ())
    """
    check_count("part_rows", part_rows, 1)
    folder = _made(Path(out))
    maker = _maker(backbone, part_rows)
    failures: list[Failure] = []
    number = n_files = n_kept = 0
    remaining = iter(files)
    with _locked(folder):
        _clean(folder)
        while part := list(islice(remaining, part_rows)):
            path = folder / f"part-{number:06}.parquet"
            failed = _kept(path, part, maker)
            if failed is not None:
                n_kept += len(part)
            else:
                if n_kept == n_files:
                    write_json(folder / SUMMARY, _summary(maker, n_files, failures, complete=False))
                done = _counting(progress, n_files, len(failures))
                failed = _write_part(path, part, maker, backbone, batch, workers, done)
            number += 1
            n_files += len(part)
            failures += failed
            if progress is not None:
                progress(n_files, len(failures))
        _check_end(folder, number)
        write_json(folder / SUMMARY, _summary(maker, n_files, failures, complete=True))
    return Extraction(folder, n_files, n_kept, tuple(failures))


def _made(folder: Path) -> Path:
    if readable(folder) != str(folder):
        raise InputError(f"{readable(folder)} is not UTF-8 text. Give another name.")
    if not folder.is_dir():
        check_folder(folder)
        if folder.exists():
            raise InputError(f"{folder} is a file. Give the name of a folder.")
        folder.mkdir()
    check_folder(folder / SUMMARY)
    return folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes out; the lock of a process that died is gone with it."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder} is being written by another process. Wait for it, or stop it.") from None
        yield


def _clean(folder: Path) -> None:
    """Remove what a killed run left half written, and refuse parts of other origin, which would be read as well."""
    for left in folder.glob(".*.partial"):
        left.unlink()
    for path in sorted(folder.rglob("*.parquet")):
        if path.parent != folder or not re.fullmatch(r"part-\d{6,}\.parquet", path.name):
            raise InputError(f"{folder} holds {path.name}, which no extraction wrote. Give an empty folder.")


def _maker(backbone: Backbone, part_rows: int) -> dict[str, Any]:
    return {
        "version": VERSION,
        "backbone": {"name": backbone.name, "digest": backbone.digest, "n_features": backbone.n_features},
        "preprocessing": json.loads(backbone.preprocessing.to_json()),
        "part_rows": part_rows,
    }


def _summary(maker: dict[str, Any], n_files: int, failures: list[Failure], *, complete: bool) -> dict[str, Any]:
    failed = [{"id": key, "why": why} for key, why in failures]
    return {"format": "p3dc-extraction", **maker, "complete": complete, "n_files": n_files, "failures": failed}


def _contents_digest(files: list[ImageFile]) -> str:
    """Hash sizes and times of change, which tell whether a file is still the one that was read."""
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


def _kept(path: Path, files: list[ImageFile], maker: dict[str, Any]) -> list[Failure] | None:
    """Return the failures of a part that an earlier run finished; None if there is none or its files have changed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        return None
    try:
        with pq.ParquetFile(path) as part:
            facts = json.loads(part.schema_arrow.metadata[FACTS_KEY])
            made_by, failures = dict(facts["maker"]), [(str(key), str(why)) for key, why in facts["failures"]]
            unchanged = facts["contents"] == _contents_digest(files)
            n_rows, same = part.metadata.num_rows, facts["files"] == _listing_digest(files)
            ids = [] if same else part.read(["id"])["id"].to_pylist()
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


def _check_maker(folder: Path, found: dict[str, Any], maker: dict[str, Any]) -> None:
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


def _changed(path: Path, before: set[str], now: set[str]) -> str:
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


def _check_end(folder: Path, n_parts: int) -> None:
    more = sorted(path.name for path in folder.glob("part-*.parquet") if int(path.stem[5:]) >= n_parts)
    if more:
        raise InputError(
            f"{folder} was extracted from a longer list of images: {more[0]} covers files that are gone. "
            "Give the same images, or a new folder."
        )


def _counting(
    progress: Callable[[int, int], None] | None, n_files: int, n_failed: int
) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, failed: progress(n_files + done, n_failed + failed)


def _write_part(
    path: Path,
    files: list[ImageFile],
    maker: dict[str, Any],
    backbone: Backbone,
    batch: int,
    workers: int | None,
    progress: Callable[[int, int], None] | None,
) -> list[Failure]:
    """Extract one part, write it and return its failures."""
    contents = _contents_digest(files)
    features = np.empty((len(files), backbone.n_features), np.float32)
    kept: list[ImageFile] = []
    failures: list[Failure] = []

    def read(file: ImageFile) -> Image.Image:
        _check_name(file)
        return read_image(file.path, short_side=backbone.preprocessing.short_side)

    with closing(embed_images(files, read, backbone, batch=batch, workers=workers)) as results:
        for file, result in results:
            if isinstance(result, ImageError):
                failures.append((file.key, str(result)))
            else:
                features[len(kept)] = result
                kept.append(file)
            if progress is not None:
                progress(len(kept) + len(failures), len(failures))
    facts = {"maker": maker, "files": _listing_digest(files), "contents": contents, "failures": failures}
    _write_parquet(path, features[: len(kept)], kept, facts)
    return failures


def _check_name(file: ImageFile) -> None:
    if readable(file.path) != str(file.path):
        raise ImageError("Its name is not UTF-8 text. Rename it.")


def _write_parquet(path: Path, features: Any, files: list[ImageFile], facts: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    n_features = features.shape[1]
    fields = [("embedding", pa.list_(pa.float32(), n_features)), ("label", pa.string()), ("id", pa.string())]
    columns = [
        pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), n_features),
        pa.array([file.label or "" for file in files], pa.string()),
        pa.array([file.key for file in files], pa.string()),
    ]
    table = pa.table(columns, schema=pa.schema(fields, metadata={FACTS_KEY: json.dumps(facts)}))
    with replacing(path) as temporary:
        pq.write_table(table, temporary, use_dictionary=["label"])
