"""Features that look like a network's: skewed, never negative, clustered by class, with norms of about 20."""

import numpy as np

from p3dc import FeatureSet


def make_features(seed: int, n_classes: int, n_rows: int, n_features: int = 640) -> FeatureSet:
    rng = np.random.default_rng(seed)
    centres = rng.gamma(0.5, 1.0, size=(n_classes, 1, n_features))
    rows = rng.standard_gamma(1.0, size=(n_classes, n_rows, n_features), dtype=np.float32)
    rows *= (0.35 * centres + 0.25).astype(np.float32)
    return FeatureSet(rows.reshape(-1, n_features), np.repeat(np.arange(n_classes), n_rows))
