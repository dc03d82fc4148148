"""Make the geometry of EfficientNet-Lite0's features that ships with the package.

Run ``python scripts/make_lite0_geometry.py FEATURES`` with features of photos of many classes.
"""

import sys
from pathlib import Path

import numpy as np

from p3dc import FeatureSet, Priors
from p3dc.io.safetensors import write_arrays

OUT = Path(__file__).parent.parent / "src" / "p3dc" / "data" / "lite0-geometry.safetensors"

if __name__ == "__main__":
    priors = Priors.from_features(FeatureSet.load(sys.argv[1]))
    found = priors.geometry
    if found is None:
        raise SystemExit(priors.reason)
    means = priors.prototypes / found.lengths[:, None]
    arrays = {"axes": found.axes, "gains": found.gains, "mean": means.mean(axis=0)}
    facts = {
        "rest": found.rest,
        "tightness": found.tightness,
        "spread": found.spread,
        "distance": float(np.linalg.norm(means - means.mean(axis=0), axis=1).mean()),
    }
    write_arrays(OUT, "geometry", 1, {name: array.astype(np.float32) for name, array in arrays.items()}, facts)
