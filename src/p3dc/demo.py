"""The features that ship with the package."""

from importlib.resources import as_file, files
from typing import NamedTuple

from p3dc.features import FeatureSet
from p3dc.priors.prototypes import Priors


class Sample(NamedTuple):
    """Features of birds: priors of 100 base classes, rows of 50 validation classes and of 50 novel classes."""

    priors: Priors
    validation: FeatureSet
    novel: FeatureSet


def load_sample() -> Sample:
    """Read the sample of CUB features that ships with the package; ``data/README.md`` has its origin.

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
