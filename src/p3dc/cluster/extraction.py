"""Extraction by Ray actors: each writes its own parts, and together they write the files that one process would.

A row of the Ray Data dataset is a part, so a part is the unit of work. An actor loads the backbone once and writes its
parts itself. The name and the rows of a part depend only on its number, so when a process or a machine dies, the actor
that makes the part again writes the same file. Ray Data's own writers would name files by attempts instead.
"""

import json
import pickle
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from p3dc._arrays import Progress
from p3dc.cluster.connection import load_ray, n_workers
from p3dc.errors import InputError
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.extraction import LOCK, Extraction, check_end, summarise, writing_to
from p3dc.images.extraction_parts import Failure, Maker, in_parts, kept_failures, make_part, maker_of, part_path
from p3dc.images.shards import is_stored
from p3dc.images.sources import ImageFile
from p3dc.io.store import Address, Location, location

Row = dict[str, Any]
"""A batch of Ray Data with one part: its number, and its files or their outcome."""


def extract(
    files: Iterable[ImageFile],
    load: Callable[..., Backbone],
    out: Address,
    *,
    views: int = 1,
    maps: bool = False,
    part_rows: int = 4096,
    batch: int | None = None,
    cpus: int = 1,
    progress: Progress | None = None,
) -> Extraction:
    """Write the features of images to a folder of Parquet parts, on the connected Ray cluster.

    It writes, keeps and refuses what :func:`p3dc.images.extraction.extract` does, and either can finish what the other
    began.

    Parameters
    ----------
    files : iterable of ImageFile
        The images, in a fixed order, in a store or at paths that every machine sees.
    load : callable
        Loads the backbone, given ``threads``; :func:`p3dc.images.backbones.loading.load_backbone`, for example.
    out : path
        The folder: an address in a store, or a path that every machine sees.
    views, maps, part_rows, batch
        As in :func:`p3dc.images.extraction.extract`.
    cpus : int, default=1
        Cores of each actor.
    progress : callable, optional
        Called with the number of images done and of all images.

    Returns
    -------
    Extraction
    """
    ray = load_ray()
    maker = maker_of(load(threads=cpus), part_rows, views=views, maps=maps)
    sizes: list[int] = []
    parts: list[Any] = []
    with writing_to(location(out).absolute()) as folder:
        for number, part in in_parts(files, part_rows):
            parts.append(ray.put(_packed(number, part)))
            sizes.append(len(part))
        check_end(folder, len(parts))
        present = {path.name for path in folder.glob("part-*.parquet")}
        finished = [part for number, part in enumerate(parts) if part_path(folder, number).name in present]
        kept = dict(_run(finished, _PartChecker, (folder, maker), cpus))
        failures = {number: failed for number, failed in kept.items() if failed is not None}
        missing = [part for number, part in enumerate(parts) if number not in failures]
        n_kept = n_done = sum(sizes[number] for number in failures)
        if missing:
            summarise(folder, maker, n_kept, _in_order(failures), complete=False)
        for number, failed in _run(missing, _PartWriter, (folder, maker, load, batch, cpus), cpus):
            failures[number] = failed or []
            n_done += sizes[number]
            if progress is not None:
                progress(n_done, sum(sizes))
        summarise(folder, maker, n_done, _in_order(failures), complete=True)
    return Extraction(location(out), n_done, n_kept, tuple(_in_order(failures)))


def _in_order(failures: dict[int, list[Failure]]) -> list[Failure]:
    return [failure for number in sorted(failures) for failure in failures[number]]


def _packed(number: int, files: list[ImageFile]) -> Any:
    """Describe a part in one row."""
    import pyarrow as pa

    here = [replace(file, path=file.path.absolute()) for file in files]
    return pa.table({"number": [number], "files": [pickle.dumps(here)], "seen": [_sees(files)]})


def _sees(files: list[ImageFile]) -> bool:
    return any(not is_stored(file.path) and file.path.exists() for file in files)


def _run(
    parts: list[Any], work: type["_PartChecker"], arguments: tuple[Any, ...], cpus: int
) -> Iterator[tuple[int, list[Failure] | None]]:
    """Send parts to a pool of actors, and yield the failures of each part as it is done.

    The pool may shrink: when a machine leaves for good, the parts that its actors had begun wait until an actor
    elsewhere is idle and makes room for them.
    """
    if not parts:
        return
    data = load_ray().data
    n_actors = min(len(parts), max(1, n_workers() // cpus))
    pool = data.ActorPoolStrategy(
        min_size=1, max_size=len(parts), initial_size=n_actors, max_tasks_in_flight_per_actor=2
    )
    done = data.from_arrow_refs(parts).map_batches(
        work, fn_constructor_args=arguments, batch_size=1, num_cpus=cpus, compute=pool
    )
    for row in done.iter_rows():
        outcome = json.loads(row["outcome"])
        if "error" in outcome:
            raise InputError(outcome["error"])
        failed = outcome["failures"]
        yield row["number"], None if failed is None else [(key, why) for key, why in failed]


class _PartChecker:
    """Actor that reads the failures of finished parts; None for a part that has to be made."""

    def __init__(self, folder: Location, maker: Maker) -> None:
        self.folder, self.maker = folder, maker

    def __call__(self, row: Row) -> Row:
        number = int(row["number"][0])
        files = pickle.loads(row["files"][0])
        outcome: dict[str, Any]
        try:
            outcome = {"failures": self.work(part_path(self.folder, number), files, seen=bool(row["seen"][0]))}
        except (InputError, OSError) as error:  # Ray Data would wrap a raised exception in pages
            outcome = {"error": str(error)}
        return {"number": [number], "outcome": [json.dumps(outcome)]}

    def work(self, path: Location, files: list[ImageFile], *, seen: bool) -> list[Failure] | None:
        return kept_failures(path, files, self.maker)


class _PartWriter(_PartChecker):
    """Actor that makes parts and writes them."""

    def __init__(
        self, folder: Location, maker: Maker, load: Callable[..., Backbone], batch: int | None, cpus: int
    ) -> None:
        super().__init__(folder, maker)
        self.load, self.batch, self.cpus = load, batch, cpus
        self.backbone: Backbone | None = None

    def work(self, path: Location, files: list[ImageFile], *, seen: bool) -> list[Failure]:
        if isinstance(self.folder, Path) and not (self.folder / LOCK).exists():
            raise _unseen(self.folder)
        if seen and not _sees(files):
            raise _unseen(files[0].path)
        if self.backbone is None:  # not when the actor starts, where an error could not be returned as a sentence
            self.backbone = self._load_backbone()
        return make_part(path, files, self.maker, self.backbone, batch=self.batch, workers=self.cpus)

    def _load_backbone(self) -> Backbone:
        backbone = self.load(threads=self.cpus)
        here = maker_of(backbone, self.maker["part_rows"])
        if self.maker | here != self.maker:
            raise InputError(f"{socket.gethostname()} has another {backbone.name}. Install the same on every machine.")
        return backbone


def _unseen(path: object) -> InputError:
    remedy = "Share images and features with every machine under the same path, or keep them in a store."
    return InputError(f"{socket.gethostname()} does not see {path}. {remedy}")
