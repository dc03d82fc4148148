"""Priors from rows without labels: what clusters gain over L2N, and what a long stream takes.

``python -m benchmarks.unlabelled DATA [--split validation] [--tasks 1000]``, where DATA holds the folders
miniimagenet-resnet12, cub-resnet12 and cub-lite0, compares clusters of the base rows with the labelled base classes,
and with half of the base classes labelled and clusters of the rest. Everything was chosen on validation classes.

``python -m benchmarks.unlabelled --rows 1000000`` generates so many rows of 1,280 features a batch at a time, twice,
and prints the peak of resident memory and the time, less that of generating.
"""

import argparse
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc import FeatureSet, P3DCClassifier, Priors, compare
from p3dc.baselines import L2N
from p3dc.evaluation.results import points

FOLDERS = ("miniimagenet-resnet12", "cub-resnet12", "cub-lite0")
SHOTS = (1, 2, 5, 10, 20)
N_FEATURES, N_CLASSES, BATCH = 1280, 2000, 4096


def priors_of(base: FeatureSet) -> dict[str, Priors]:
    """Build priors with all labels, with none and with those of every other class."""
    half = base.labels % 2 == 0
    labelled = Priors.from_features(FeatureSet(base.features[half], base.labels[half], base.class_names))
    return {
        "labelled": Priors.from_features(base),
        "clusters": Priors.from_unlabelled(base),
        "half labelled": labelled,
        "and clusters": Priors.merge([labelled, Priors.from_unlabelled(base.features[~half])]),
    }


def measure_gains(data: Path, split: str, n_tasks: int) -> None:
    for name in FOLDERS:
        rows = FeatureSet.load(data / name / f"{split}.npz")
        priors = priors_of(FeatureSet.load(data / name / "base.npz"))
        print(f"\n{name}, {split} classes, {len(priors['clusters'])} clusters", flush=True)
        print(f"{'shots':<8}{'L2N':>6}" + "".join(f"{title:>16}" for title in priors))
        for n_shot in SHOTS:
            rivals: dict[str, Any] = {title: P3DCClassifier(known) for title, known in priors.items()}
            found = compare(rivals | {"L2N": L2N()}, rows, n_shot=n_shot, n_tasks=n_tasks)
            gains = (found.difference(title, "L2N") for title in priors)
            cells = "".join(f"{points(gain.mean, gain.interval):>16}" for gain in gains)
            print(f"{n_shot:<8}{100 * found.scores['L2N'].mean:>6.1f}{cells}", flush=True)


def generate(n_rows: int) -> Iterator[npt.NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    classes = rng.standard_gamma(0.5, size=(N_CLASSES, N_FEATURES), dtype=np.float32) + np.float32(0.2)
    for start in range(0, n_rows, BATCH):
        labels = np.arange(start, min(start + BATCH, n_rows)) * N_CLASSES // n_rows  # sorted, as folders are
        yield rng.standard_exponential(size=(len(labels), N_FEATURES), dtype=np.float32) * classes[labels]


def measure_stream(n_rows: int) -> None:
    start = time.process_time()
    for _ in generate(n_rows):
        pass
    generating = time.process_time() - start
    start = time.process_time()
    priors = Priors.from_unlabelled(lambda: generate(n_rows))
    reason = priors.reason  # the geometry is learned here
    elapsed = time.process_time() - start - 2 * generating
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(f"{n_rows:,} rows: {priors}, peak {peak:.2f} GB, {elapsed:.0f} s of processor time")
    if reason:
        print(f"no geometry: {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--split", choices=("validation", "novel"), default="validation")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--rows", type=int)
    given = parser.parse_args()
    if given.rows is not None:
        measure_stream(given.rows)
    elif given.data is not None:
        measure_gains(given.data, given.split, given.tasks)
    else:
        parser.error("give the folder of features, or --rows")


if __name__ == "__main__":
    main()
