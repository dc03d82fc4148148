"""Priors that come with a backbone: the classes that it was trained on.

A row of the backbone's last layer is a direction, not a point. Seen from the mean of all features, its class lies in
the direction of the row minus the mean of all rows. Each prototype lies in that direction, at three times the distance
of real classes; prototypes that lie nearer pull less well. How features of a class scatter must be known from photos.
For the EfficientNet-Lites it ships with the package, estimated by ``scripts/make_lite_geometry.py``.
"""

import os
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc.errors import InputError
from p3dc.images.backbones.backbone import Backbone
from p3dc.images.backbones.efficientnet_lite import LITES
from p3dc.io.safetensors import read_arrays, write_arrays
from p3dc.method import l2_normalize
from p3dc.priors.geometry import Geometry, whiten
from p3dc.priors.prototypes import Priors

VERSION = 1
FAR = 3.0
"""Distance of the prototypes from the mean, as a multiple of the mean distance of real classes."""

ARRAYS = ("axes", "gains", "mean")
NUMBERS = ("rest", "tightness", "spread", "distance")


@dataclass(frozen=True, eq=False)
class Scatter:
    """How a network's features scatter, learned from photos: a geometry, and where its classes lie.

    Attributes
    ----------
    geometry : Geometry
    mean : array of shape (n_features,)
        The mean direction of the classes.
    distance : float
        Their mean distance from it.
    """

    geometry: Geometry
    mean: npt.NDArray[np.float64]
    distance: float

    @classmethod
    def from_priors(cls, priors: Priors) -> "Scatter":
        """Learn from the base classes or clusters of photos."""
        if priors.geometry is None:
            raise InputError(f"the priors have no geometry: {priors.reason}. Build them from photos of many classes.")
        means = priors.prototypes / priors.geometry.lengths[:, None]
        mean = means.mean(axis=0)
        return cls(priors.geometry, mean, float(np.linalg.norm(means - mean, axis=1).mean()))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Scatter":
        """Read what :meth:`save` wrote."""
        arrays, numbers = read_arrays(path, "geometry", VERSION, required=[*ARRAYS], facts=NUMBERS)
        axes, gains, mean = (arrays[name].astype(np.float64) for name in ARRAYS)
        try:
            distance = float(numbers.pop("distance"))
            if not 0 < distance < np.inf:
                raise ValueError(f"its classes lie at a distance of {distance:g}")
            return cls(_geometry(axes, gains, mean[None], numbers), mean, distance)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{path} is damaged ({error}). Write it again with save.") from None

    def save(self, path: str | os.PathLike[str], dtype: npt.DTypeLike = np.float32) -> None:
        """Write a safetensors file."""
        found = self.geometry
        arrays = {"axes": found.axes, "gains": found.gains, "mean": self.mean}
        numbers = {name: getattr(found, name) for name in NUMBERS[:-1]} | {"distance": self.distance}
        write_arrays(path, "geometry", VERSION, {name: each.astype(dtype) for name, each in arrays.items()}, numbers)


def backbone_priors(backbone: Backbone, photos: Priors | None = None) -> Priors | None:
    """Return the classes that a backbone was trained on, from the rows of its last layer.

    Parameters
    ----------
    backbone : Backbone
    photos : Priors, optional
        Base classes or clusters of photos, made with this backbone, which show how its features scatter. The
        EfficientNet-Lites need none.

    Returns
    -------
    Priors or None
        None where the backbone has no last layer, or where nothing shows how its features scatter.

    Examples
    --------
    >>> from p3dc.images.backbones.loading import load_backbone
    >>> from p3dc.images.backbone_priors import backbone_priors
    >>> priors = backbone_priors(load_backbone())
    >>> priors
    Priors(1,000 base classes, 1,280 features)
    >>> priors.class_names[10:13]
    ('brambling', 'goldfinch', 'house finch')
    """
    if photos is None and backbone.name not in LITES:
        return None
    head = backbone.head()
    if head is None:
        return None
    scatter = _shipped(LITES[backbone.name].number) if photos is None else Scatter.from_priors(photos)
    rows = head.rows.astype(np.float64)
    if rows.shape[1:] != scatter.mean.shape:
        raise InputError(
            f"the priors have {len(scatter.mean):,} features but {backbone.name} gives {rows.shape[1]:,}. "
            "Build them with this backbone."
        )
    prototypes = scatter.mean + FAR * scatter.distance * l2_normalize(rows - rows.mean(axis=0))
    found = scatter.geometry
    numbers = {"rest": found.rest, "tightness": found.tightness, "spread": found.spread}
    return Priors(prototypes, head.names, geometry=_geometry(found.axes, found.gains, prototypes, numbers))


def _geometry(axes: Any, gains: Any, prototypes: Any, numbers: dict[str, float]) -> Geometry:
    """Put a geometry together, with points whose directions are not taken first."""
    whitened = whiten(prototypes, axes, gains, numbers["rest"])
    return Geometry(axes, gains, **numbers, lengths=np.ones(len(prototypes)), prototypes=whitened)


def _shipped(number: int) -> Scatter:
    with as_file(files("p3dc") / "data" / f"lite{number}-geometry.safetensors") as path:
        return Scatter.load(path)
