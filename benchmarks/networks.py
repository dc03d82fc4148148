"""Compare networks on photos: accuracy with few shots, and images per second.

``python -m benchmarks.networks PHOTOS [--backbone ADDRESS ...] [--most N]``, where PHOTOS has a folder for each class.
Every network sees the same photos, the first N of each class, and the same tasks of 5 ways and 15 queries: by L2N, and
with the base classes that come with the network. Rounds that time the networks alternate, and the best of each counts.
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from p3dc import FeatureSet, P3DCClassifier, evaluate
from p3dc.baselines import L2N
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.backbones.loading import LITES, load_backbone
from p3dc.images.decoding import ImageError, read_image
from p3dc.images.embedding import embed_images
from p3dc.images.sources import ImageFile, list_folder

N_TASKS = 1000
N_QUERY = 15
SHOTS = (1, 5)
LEAST = N_QUERY + max(SHOTS)
ROUNDS = 5
TIMED = 32


def first_of_each(files: Iterator[ImageFile], most: int) -> Iterator[ImageFile]:
    seen: Counter[str | None] = Counter()
    for file in files:
        seen[file.label] += 1
        if seen[file.label] <= most:
            yield file


def features_of(files: list[ImageFile], backbone: Backbone) -> FeatureSet:
    rows, labels = [], []
    read = embed_images(
        files, lambda file: read_image(file.path, short_side=backbone.preprocessing.short_side), backbone
    )
    for file, found in read:
        if not isinstance(found, ImageError):
            rows.append(found)
            labels.append(str(file.label))
    return FeatureSet(np.stack(rows), labels)


def images_per_second(backbones: list[Backbone]) -> list[float]:
    best = [0.0] * len(backbones)
    rng = np.random.default_rng(0)
    for _ in range(ROUNDS):
        for place, backbone in enumerate(backbones):
            pixels = rng.normal(size=(TIMED, *backbone.preprocessing.shape)).astype(np.float32)
            start = time.perf_counter()
            backbone.embed(pixels)
            best[place] = max(best[place], TIMED / (time.perf_counter() - start))
    return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("photos", type=Path)
    parser.add_argument("--backbone", nargs="+", default=[*LITES])
    parser.add_argument("--most", type=int, default=LEAST, help="photos of each class")
    given = parser.parse_args()
    if given.most < LEAST:
        parser.error(f"--most is {given.most}, but a task takes up to {LEAST} photos of a class")
    backbones = [load_backbone(address) for address in given.backbone]
    files = [*first_of_each(list_folder(given.photos), given.most)]
    print(f"{len(files):,} photos, {N_TASKS:,} tasks")
    rates = images_per_second(backbones)
    for backbone, rate in zip(backbones, rates, strict=True):
        speed = f"{rate:.0f} images per second, {rate / rates[0]:.2f} of the first"
        print(f"{backbone.name}: {backbone.n_features:,} features, {speed}", flush=True)
        features, priors = features_of(files, backbone), backbone_priors(backbone)
        methods = {"L2N": L2N()} | ({} if priors is None else {"its classes": P3DCClassifier(priors)})
        for n_shot in SHOTS:
            for name, method in methods.items():
                found = evaluate(method, features, n_way=5, n_shot=n_shot, n_query=N_QUERY, n_tasks=N_TASKS, seed=0)
                print(f"  {n_shot} shots, {name}: {found}", flush=True)


if __name__ == "__main__":
    main()
