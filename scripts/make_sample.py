"""Make the features that ship with the package, out of the folder of CUB features.

Run as ``python scripts/make_sample.py FOLDER``, where FOLDER holds base.npz, validation.npz and novel.npz.
"""

import sys
from pathlib import Path

import numpy as np

from p3dc import FeatureSet, Priors

ROWS = 32
OUT = Path(__file__).parent.parent / "src" / "p3dc" / "data"


def first_rows(features: FeatureSet, n_rows: int) -> FeatureSet:
    """Keep the first rows of each class."""
    rows = np.concatenate([np.flatnonzero(features.labels == c)[:n_rows] for c in range(len(features.class_names))])
    return FeatureSet(features.features[rows].astype(np.float16), features.labels[rows], features.class_names)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    known = Priors.from_features(FeatureSet.load(folder / "base.npz"))
    small = Priors(known.prototypes, known.class_names, known.counts, geometry=known.geometry)  # nobody will merge it
    small.save(OUT / "cub-priors.safetensors")
    for name in ("validation", "novel"):
        first_rows(FeatureSet.load(folder / f"{name}.npz"), ROWS).save(OUT / f"cub-{name}.npz")
