"""Measure what views of photos gain and cost: accuracies on real photos, and milliseconds of the processor a photo.

``python -m benchmarks.views FOLDER …`` takes folders with a folder of photos for each class. It extracts features of
all views (to ``--cache``, if given, so that it can be continued), then classifies the same tasks with 1, 3, 5 and 7
views, by P3DC with the base classes of the backbone. Differences are paired, with 95 % intervals. With ``--maps`` it
extracts feature maps as well, and compares MCL-Katz on them with L2N.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc import FeatureSet, P3DCClassifier, Priors, evaluate
from p3dc.baselines import L2N, MCLKatz
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones.loading import load_backbone
from p3dc.images.decoding import read_image
from p3dc.images.embedding import embed_images
from p3dc.images.extraction import extract
from p3dc.images.sources import list_folder
from p3dc.images.views import VIEWS, average_views, views_of

COUNTS = (1, 3, 5, 7)
PHOTOS = 40
"""How many photos to time."""

KATZ_TASKS = 100


def accuracies(
    features: FeatureSet, priors: Priors | None, n_views: int, n_shot: int, n_tasks: int
) -> npt.NDArray[np.float64]:
    """Return the accuracy of each task in percent, with some of the views."""
    assert features.views is not None
    rows = FeatureSet(average_views(features.views[:, :n_views]), features.labels, features.class_names)
    drawing: Any = {"n_shot": n_shot, "n_query": n_query(features, n_shot), "n_tasks": n_tasks}
    return 100 * evaluate(P3DCClassifier(priors), rows, **drawing).accuracy


def n_query(features: FeatureSet, n_shot: int) -> int:
    """Return how many queries a class can have, ten at most."""
    return min(10, int(np.bincount(features.labels).min()) - n_shot)


def seconds_a_photo(folders: Sequence[Path], n_views: int) -> float:
    """Return the processor's seconds for a photo, from file to features."""
    backbone = load_backbone()
    files = [file.path for folder in folders for file in list_folder(folder)][:PHOTOS]
    short_side = backbone.preprocessing.short_side
    start = time.process_time()
    for _ in embed_images(
        files, lambda path: read_image(path, short_side=short_side), backbone, views=views_of(n_views)
    ):
        pass
    return (time.process_time() - start) / len(files)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--maps", action="store_true")
    given = parser.parse_args()
    backbone = load_backbone()
    priors = backbone_priors(backbone)
    with tempfile.TemporaryDirectory() as temporary:
        for folder in given.folders:
            out = (given.cache or Path(temporary)) / folder.name
            extract(list_folder(folder), backbone, out, views=len(VIEWS), maps=given.maps)
            features = FeatureSet.load(out, also=["views", "maps"])
            print(f"{folder.name}: {features}", flush=True)
            for n_shot in (1, 5):
                first = accuracies(features, priors, 1, n_shot, given.tasks)
                cells = [f"1 view {first.mean():.2f}"]
                for n_views in COUNTS[1:]:
                    gain = accuracies(features, priors, n_views, n_shot, given.tasks) - first
                    cells.append(f"{n_views} views {gain.mean():+.2f} ± {1.96 * gain.std() / len(gain) ** 0.5:.2f}")
                print(f"  {n_shot}-shot: {', '.join(cells)}", flush=True)
                if features.maps is not None:
                    drawing: Any = {"n_shot": n_shot, "n_query": n_query(features, n_shot), "n_tasks": KATZ_TASKS}
                    for method in (L2N(), MCLKatz(features.maps.shape[1])):
                        print(f"  {type(method).__name__}: {evaluate(method, features, **drawing)}", flush=True)
    for n_views in COUNTS:
        cost = 1000 * seconds_a_photo(given.folders, n_views)
        print(f"{n_views} views: {cost:.1f} ms of the processor a photo", flush=True)


if __name__ == "__main__":
    main()
