"""Small sets of features that look like a network's: skewed, never negative, clustered by class."""

import os
from pathlib import Path

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # or scikit-learn skips one of its checks

import numpy as np
import pytest

from p3dc import FeatureSet, Priors


def make_features(seed, n_classes, n_rows, n_features=24, dtype=np.float32, prefix="class"):
    rng = np.random.default_rng(seed)
    centres = rng.gamma(0.6, 1.5, size=(n_classes, 1, n_features))
    rows = rng.gamma(2.0, centres / 2.0 + 0.05, size=(n_classes, n_rows, n_features))
    labels = np.repeat(np.arange(n_classes), n_rows)
    names = [f"{prefix}-{c}" for c in range(n_classes)]
    return FeatureSet(rows.reshape(-1, n_features).astype(dtype), labels, names)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def base():
    return make_features(1, 12, 30, prefix="base")


@pytest.fixture(scope="session")
def validation():
    return make_features(2, 8, 30, prefix="validation")


@pytest.fixture(scope="session")
def novel():
    return make_features(3, 8, 30, prefix="novel")


@pytest.fixture(scope="session")
def priors(base):
    return Priors.from_features(base)


@pytest.fixture(scope="session")
def data_folder():
    """The folder of real features; tests marked data run where P3DC_DATA names it."""
    folder = os.environ.get("P3DC_DATA")
    if not folder:
        pytest.skip("P3DC_DATA names no folder of real features")
    path = Path(folder)
    assert path.is_dir(), f"P3DC_DATA is {folder}, which is not a folder"
    return path
