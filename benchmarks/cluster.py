"""What Ray costs and gains on one machine: extraction, priors and tasks with either engine in one run.

``python -m benchmarks.cluster [photos [parts [tasks]]]`` draws its own photos, JPEGs of 500×375, and generates its own
features: parts of 4,096 rows of 1,280 for the priors, 640 features and 64 priors for the tasks. Ray has costs that do
not grow with the work: it has to start, and each job starts processes. They are measured on nearly empty jobs and
subtracted before the rates are computed.
"""

import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.extraction import make_photos
from benchmarks.made import make_features
from p3dc import FeatureSet, Priors, evaluate, search
from p3dc.baselines import L2N
from p3dc.cluster import extraction as on_ray
from p3dc.cluster.connection import connected
from p3dc.cluster.evaluation import run_on_ray
from p3dc.cluster.priors import average
from p3dc.evaluation.executors import run_serially
from p3dc.features import stream_features
from p3dc.images import extraction as here
from p3dc.images.backbones.backbone import n_cores
from p3dc.images.backbones.loading import load_backbone
from p3dc.images.sources import ImageFile, list_folder

LISTED = 100_000


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def report(what: str, amount: int, local: float, ray: float, small: float) -> None:
    """Print rates a second; those of Ray leave out the start of a job."""
    rates = amount / local, amount / max(ray - small, 1e-9)
    print(f"{what:<26} {rates[0]:>12,.0f} {rates[1]:>12,.0f} {rates[1] / rates[0]:>6.2f} {small:>12.1f}", flush=True)


def measure_extraction(photos: Path, work: Path) -> None:
    files = list(list_folder(photos))
    part_rows = -(-len(files) // (8 * n_cores()))
    backbone = load_backbone()
    local = seconds(lambda: here.extract(files, backbone, work / "local", part_rows=part_rows))
    small = seconds(lambda: on_ray.extract(files[:2], load_backbone, work / "small", part_rows=1))
    ray = seconds(lambda: on_ray.extract(files, load_backbone, work / "ray", part_rows=part_rows))
    report("extract, photos", len(files), local, ray, small)


def measure_priors(folder: Path, n_parts: int) -> None:
    for number in range(n_parts + 1):
        rows = make_features(number, 64, 64, n_features=1280)
        out = folder / ("one" if number == n_parts else "all") / f"part-{number:06}.parquet"
        out.parent.mkdir(exist_ok=True, parents=True)
        FeatureSet(rows.features, [f"class-{label}" for label in rows.labels]).save(out)
    streamed = ((rows, labels) for rows, labels, _ in stream_features(folder / "all"))
    local = seconds(lambda: Priors.from_batches(streamed))
    small = seconds(lambda: average(folder / "one"))
    ray = seconds(lambda: average(folder / "all"))
    report("priors, rows", 4096 * n_parts, local, ray, small)


def measure_tasks(what: str, n_tasks: int, run: Callable[..., Any]) -> None:
    local = seconds(lambda: run(n_shot=5, n_tasks=n_tasks, executor=run_serially))
    small = seconds(lambda: run(n_shot=5, n_tasks=n_cores(), executor=run_on_ray))
    ray = seconds(lambda: run(n_shot=5, n_tasks=n_tasks, executor=run_on_ray))
    report(what, n_tasks, local, ray, small)


def measure_listing() -> None:
    """Print how much memory the name of an image takes: in the list of the local engine, and in Ray's object store."""
    tracemalloc.start()
    names = [f"n{i % 1000:08}/n{i % 1000:08}_{i:08}.JPEG" for i in range(LISTED)]
    before = tracemalloc.get_traced_memory()[0]
    root = Path("/data/images/train")
    files = [ImageFile(root / name, "".join(name), name.partition("/")[0]) for name in names]
    for file in files:
        str(file.path)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    packed = on_ray._packed(0, files).nbytes
    print(f"memory for each image: {held / LISTED:.0f} bytes with the local engine, {packed / LISTED:.0f} with Ray")


def main(n_photos: int = 1000, n_parts: int = 24, n_tasks: int = 10_000) -> None:
    print(f"{n_cores()} cores, {n_photos:,} photos, {n_parts} parts, {n_tasks:,} tasks", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "photos").mkdir()
        make_photos(folder / "photos", n_photos)
        size = np.mean([file.path.stat().st_size for file in list_folder(folder / "photos")])
        joining = connected()
        print(f"photos of {size / 1000:.0f} KB; Ray starts in {seconds(joining.__enter__):.1f} s", flush=True)
        print(f"{'':<26} {'local, a s':>12} {'Ray, a s':>12} {'ratio':>6} {'start of job':>12}", flush=True)
        measure_extraction(folder / "photos", folder)
        measure_priors(folder / "features", n_parts)
        novel = make_features(0, n_classes=20, n_rows=600)
        priors = Priors.from_features(make_features(1, n_classes=64, n_rows=100))
        measure_tasks("evaluate, tasks of L2N", n_tasks, partial(evaluate, L2N(), novel))
        measure_tasks("search, tasks of 66 points", n_tasks, partial(search, priors, novel))
        joining.__exit__(None, None, None)
    measure_listing()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
