"""Features of many images as a folder of Parquet parts, which an interrupted run continues.

:mod:`p3dc.images.extraction_parts` tells what a part is. Nothing but the parts is needed to continue.
"""

import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from p3dc.errors import InputError
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.extraction_parts import Failure, Maker, in_parts, kept_failures, make_part, maker_of, part_path
from p3dc.images.sources import ImageFile, readable
from p3dc.io.atomic import check_folder, write_json

LOCK = ".lock"
SUMMARY = "extraction.json"


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
        As in :func:`p3dc.images.embedding.embed_images`.
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
    >>> from p3dc.images.backbones.loading import load_backbone
    >>> from p3dc.images.extraction import extract
    >>> from p3dc.images.sources import list_folder
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
    maker = maker_of(backbone, part_rows)
    failures: list[Failure] = []
    n_parts = n_files = n_kept = 0
    with writing_to(out) as folder:
        for number, part in in_parts(files, part_rows):
            path = part_path(folder, number)
            failed = kept_failures(path, part, maker)
            if failed is not None:
                n_kept += len(part)
            else:
                if n_kept == n_files:
                    summarise(folder, maker, n_files, failures, complete=False)
                told = _counting(progress, n_files, len(failures))
                failed = make_part(path, part, maker, backbone, batch=batch, workers=workers, progress=told)
            n_parts += 1
            n_files += len(part)
            failures += failed
            if progress is not None:
                progress(n_files, len(failures))
        check_end(folder, n_parts)
        summarise(folder, maker, n_files, failures, complete=True)
    return Extraction(folder, n_files, n_kept, tuple(failures))


@contextmanager
def writing_to(out: str | os.PathLike[str]) -> Iterator[Path]:
    """Make a folder for parts and keep other processes out of it; what killed processes left is swept up."""
    folder = _made(Path(out))
    with _locked(folder):
        _check_origin(folder)
        _sweep(folder)
        yield folder
        _sweep(folder)


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
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder} is being written by another process. Wait for it, or stop it.") from None
        yield


def _sweep(folder: Path) -> None:
    """Remove what is half written."""
    for left in folder.glob(".*.partial"):
        left.unlink(missing_ok=True)


def _check_origin(folder: Path) -> None:
    """Refuse parts of other origin, which would be read as well."""
    for path in sorted(folder.rglob("*.parquet")):
        if path.parent != folder or not re.fullmatch(r"part-\d{6,}\.parquet", path.name):
            raise InputError(f"{folder} holds {path.name}, which no extraction wrote. Give an empty folder.")


def summarise(folder: Path, maker: Maker, n_files: int, failures: list[Failure], *, complete: bool) -> None:
    """Write down what made the features of a folder, and what failed."""
    failed = [{"id": key, "why": why} for key, why in failures]
    facts = {"format": "p3dc-extraction", **maker, "complete": complete, "n_files": n_files, "failures": failed}
    write_json(folder / SUMMARY, facts)


def check_end(folder: Path, n_parts: int) -> None:
    """Refuse parts beyond the last."""
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
