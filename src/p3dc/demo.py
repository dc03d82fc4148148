"""The features that ship with the package."""

from importlib.resources import as_file, files
from typing import NamedTuple

from p3dc.features import FeatureSet
from p3dc.priors.prototypes import Priors


class Sample(NamedTuple):
    """Birds of 100 base classes as priors, and of 50 validation and 50 other novel classes as features."""

    priors: Priors
    validation: FeatureSet
    novel: FeatureSet


def load_sample() -> Sample:
    """Read the shipped sample of CUB features; ``data/README.md`` beside it tells its origin.

    Examples
    --------
    >>> from p3dc.demo import load_sample
    >>> sample = load_sample()
    >>> sample.priors
    Priors(100 base classes, 640 features)
    >>> sample.novel
    FeatureSet(1,600 rows, 640 features, 50 classes)
    """
    with as_file(files("p3dc") / "data") as folder:
        return Sample(
            Priors.load(folder / "cub-priors.safetensors"),
            FeatureSet.load(folder / "cub-validation.npz"),
            FeatureSet.load(folder / "cub-novel.npz"),
        )
