"""Make the geometry of an EfficientNet-Lite's features that ships with the package.

Run ``python scripts/make_lite_geometry.py NUMBER FEATURES`` with the number of the network and its features of photos
of many classes.
"""

import sys
from pathlib import Path

import numpy as np

from p3dc import FeatureSet, Priors
from p3dc.images.backbone_priors import Scatter

DATA = Path(__file__).parent.parent / "src" / "p3dc" / "data"

if __name__ == "__main__":
    number, features = sys.argv[1:]
    scatter = Scatter.from_priors(Priors.from_features(FeatureSet.load(features)))
    dtype = np.float32 if number == "0" else np.float16
    scatter.save(DATA / f"lite{number}-geometry.safetensors", dtype)
