"""Extract features of many images into Parquet parts, in a folder or a store; an interrupted run can be continued.

:mod:`p3dc.images.extraction_parts` defines a part. The parts are all that is needed to continue.
"""

import fcntl
import json
import re
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from p3dc._arrays import Progress
from p3dc.errors import InputError
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.extraction_parts import Failure, Maker, in_parts, kept_failures, make_part, maker_of, part_path
from p3dc.images.sources import ImageFile, readable
from p3dc.io.atomic import check_folder, json_text, sweep
from p3dc.io.store import Address, Location, location, writing

LOCK = ".lock"
SUMMARY = "extraction.json"


@dataclass(frozen=True)
class Extraction:
    """The result of an extraction.

    Attributes
    ----------
    folder : Path or StorePath
        The folder of parts, which :meth:`p3dc.FeatureSet.load` reads.
    n_files : int
        Number of images.
    n_kept : int
        Number of images that an earlier run had extracted.
    failures : tuple of (key, sentence)
        The images without features, in order.
    """

    folder: Location
    n_files: int
    n_kept: int
    failures: tuple[Failure, ...]

    @property
    def n_rows(self) -> int:
        """Number of images with features."""
        return self.n_files - len(self.failures)


def extract(
    files: Iterable[ImageFile],
    backbone: Backbone,
    out: Address,
    *,
    views: int = 1,
    maps: bool = False,
    part_rows: int = 4096,
    batch: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Extraction:
    """Write the features of images to a folder of Parquet parts, or continue a run that was interrupted.

    The columns are ``embedding``, ``label`` (empty where there is none) and ``id``, the key of the file. The file
    ``extraction.json`` records what made the features and which images failed.

    Parameters
    ----------
    files : iterable of ImageFile
        The images, in a fixed order; read part by part.
    backbone : Backbone
    out : path
        The folder, or its ``s3://`` or ``gs://`` address. It may be missing, empty, or left by a run over the same
        files with the same backbone.
    views : int, default=1
        Features are averaged over the first of :data:`p3dc.images.views.VIEWS`. If there are more than one, the column
        ``views`` holds the features of each.
    maps : bool, default=False
        Whether to write feature maps too, in the column ``maps``.
    part_rows : int
        Number of files in a part. At most one part is held in memory, and at most 64 MB of it.
    batch, workers : int, optional
        As in :func:`p3dc.images.embedding.embed_images`.
    progress : callable, optional
        Called with the number of images done and of all images, or of those listed so far if ``files`` has no length.

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
    maker = maker_of(backbone, part_rows, views=views, maps=maps)
    failures: list[Failure] = []
    n_parts = n_files = n_kept = 0
    n_all = len(files) if isinstance(files, Sized) else 0
    with writing_to(out) as folder:
        for number, part in in_parts(files, part_rows):
            path = part_path(folder, number)
            report = _counted_from(n_files, max(n_all, n_files + len(part)), progress)
            failed = kept_failures(path, part, maker)
            if failed is not None:
                n_kept += len(part)
            else:
                if n_kept == n_files:
                    summarise(folder, maker, n_files, failures, complete=False)
                failed = make_part(path, part, maker, backbone, batch=batch, workers=workers, progress=report)
            n_parts += 1
            n_files += len(part)
            failures += failed
            if report is not None:
                report(len(part), len(part))
        check_end(folder, n_parts)
        summarise(folder, maker, n_files, failures, complete=True)
    return Extraction(folder, n_files, n_kept, tuple(failures))


def is_finished(folder: Path) -> bool:
    """Whether a folder holds the features of an extraction that came to its end."""
    try:
        return json.loads((folder / SUMMARY).read_bytes())["complete"] is True
    except (OSError, ValueError, TypeError, KeyError):
        return False


def discard(folder: Path) -> None:
    """Remove what an extraction wrote, and its folder unless there is anything else in it."""
    for path in (*folder.glob("part-*.parquet"), folder / SUMMARY, folder / LOCK):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def writing_to(out: Address) -> Iterator[Location]:
    """Make a folder for parts, lock it against other processes, and remove files that killed processes left behind.

    A store has no locks and needs none for the same work: every process writes the same objects.
    """
    folder = location(out)
    if not isinstance(folder, Path):
        _check_origin(folder)
        yield folder
        return
    if readable(folder) != str(folder):
        raise InputError(f"{readable(folder)} is not UTF-8 text. Give another name.")
    if not folder.is_dir():
        check_folder(folder)
        if folder.exists():
            raise InputError(f"{folder} is a file. Give the name of a folder.")
        folder.mkdir()
    check_folder(folder / SUMMARY)
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released when the process ends, however it ends
        except BlockingIOError:
            raise InputError(f"{folder} is being written by another process. Wait for it, or stop it.") from None
        _check_origin(folder)
        sweep(folder)
        yield folder
        sweep(folder)


def _check_origin(folder: Location) -> None:
    """Refuse Parquet files that no extraction wrote, since they would be read as parts."""
    found: list[Location] = sorted(folder.rglob("*.parquet"), key=str)
    for path in found:
        if path.parent != folder or not re.fullmatch(r"part-\d{6,}\.parquet", path.name):
            raise InputError(f"{folder} holds {path.name}, which no extraction wrote. Give an empty folder.")


def summarise(folder: Location, maker: Maker, n_files: int, failures: list[Failure], *, complete: bool) -> None:
    """Record what made the features in a folder, and which images failed."""
    failed = [{"id": key, "why": why} for key, why in failures]
    facts = {"format": "p3dc-extraction", **maker, "complete": complete, "n_files": n_files, "failures": failed}
    with writing(folder / SUMMARY) as file:
        file.write(json_text(facts).encode())


def check_end(folder: Location, n_parts: int) -> None:
    """Refuse a folder with more parts than the list of images has."""
    more = sorted(path.name for path in folder.glob("part-*.parquet") if int(path.stem[5:]) >= n_parts)
    if more:
        raise InputError(
            f"{folder} was extracted from a longer list of images: {more[0]} covers files that are gone. "
            "Give the same images, or a new folder."
        )


def _counted_from(n_done: int, n_all: int, progress: Progress | None) -> Progress | None:
    """Report the progress of one part as that of all images."""
    return None if progress is None else lambda done, _: progress(n_done + done, n_all)
