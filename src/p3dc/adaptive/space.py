"""The whitened space: directions, whitened by how base classes scatter and seen from the centre of a task.

There the paper's equations hold unchanged, every inner product is a cosine, and neither the length nor the sign of the
features matters. ``docs/explanation/auto.md`` derives it and shows what was measured.

Arrays may come from NumPy or from torch. Shape letters: S support, N ways, D features; ``...`` stands for any number of
leading task axes.
"""

from dataclasses import dataclass, replace

import numpy as np
from array_api_compat import array_namespace

from p3dc._arrays import Array, Labels, Mask, to_device_of
from p3dc.method import l2_normalize, vector_norm
from p3dc.priors.geometry import Geometry


@dataclass(frozen=True, eq=False)
class WhitenedSpace:
    """The space in which the support and the queries of a task are compared.

    Attributes
    ----------
    geometry : Geometry or None
        How base classes scatter. Without it features are only normalised.
    centre : array of shape (..., 1, D), or None
        The centre of the task, once its support is known.
    """

    geometry: Geometry | None
    centre: Array | None = None

    def whiten(self, rows: Array) -> Array:
        """Whiten the directions of features, (..., D) -> (..., D) in float64."""
        xp = array_namespace(rows)
        directions = l2_normalize(xp.astype(rows, xp.float64))
        return directions if self.geometry is None else self.geometry.whiten(directions)

    def centred_on(self, whitened: Array, averages: Array) -> "WhitenedSpace":
        """Return the space of a task, from its whitened support, (..., S, D), and class averages, (N, S)."""
        if self.geometry is None:
            return self
        return replace(self, centre=task_centre(averages @ whitened, self.geometry.mean))

    def centred(self, whitened: Array) -> Array:
        """Normalise whitened vectors as seen from the centre, (..., S, D) -> (..., S, D)."""
        if self.centre is None:
            return whitened
        return l2_normalize(whitened - array_namespace(whitened).astype(self.centre, whitened.dtype, copy=False))

    def transform(self, rows: Array) -> Array:
        """Bring features into the space of the task, (..., S, D) -> (..., S, D)."""
        return self.centred(self.whiten(rows))

    def prior_cosines(self, whitened: Array, products: Array) -> tuple[Array, Array]:
        """Compare whitened vectors with the base prototypes, both as seen from the centre.

        All follows from inner products, so that no prototype is centred, and the same products serve any centre.

        Parameters
        ----------
        whitened : array of shape (S, D)
        products : array of shape (S, B)
            Their inner products with the prototypes as they are.

        Returns
        -------
        cosines : array of shape (S, B)
        lengths : array of shape (B,)
            Lengths of the prototypes as seen from the centre.
        """
        assert self.geometry is not None
        assert self.centre is not None
        xp, centre = array_namespace(whitened), self.centre[0]
        along, square = self.geometry.prototypes @ centre, xp.vecdot(centre, centre)
        lengths = xp.sqrt((self.geometry.squared_lengths - 2 * along + square).clip(min=1e-12))
        own = vector_norm(whitened - centre)
        apart = products - (along + (whitened @ centre - square)[:, None])
        return apart / (xp.where(own == 0, xp.ones_like(own), own)[:, None] * lengths), lengths

    def to_device_of(self, other: Array) -> "WhitenedSpace":
        """Move all arrays to the library and device of another."""
        return WhitenedSpace(
            None if self.geometry is None else self.geometry.to_device_of(other),
            None if self.centre is None else to_device_of(self.centre, other),
        )


def task_centre(class_means: Array, base_mean: Array) -> Array:
    """Move from the mean of the base classes towards that of the task, (..., N, D), (D,) -> (..., 1, D)."""
    return shrunken_mean(class_means, base_mean)[0]


def shrunken_mean(means: Array, base_mean: Array, weights: Array | None = None) -> tuple[Array, Array]:
    """Move from the mean of the base classes towards that of a few classes, by James–Stein shrinkage.

    The mean of a few classes is uncertain by their variance over their number. Only the part of the distance that
    exceeds this uncertainty is believed.

    Parameters
    ----------
    means : array of shape (..., N, D)
    base_mean : array of shape (D,)
    weights : array of shape (N,), optional
        Of the classes, with the sum 1; by default all are equal.

    Returns
    -------
    centre : array of shape (..., 1, D)
    share : array of shape (..., 1, 1)
        The part of the distance that is believed, from 0 to 1.
    """
    xp = array_namespace(means)
    n_classes = means.shape[-2] if weights is None else 1 / (weights @ weights)
    task = xp.mean(means, axis=-2, keepdims=True) if weights is None else weights[None] @ means
    away, deviations = task - base_mean, means - task
    distance = xp.vecdot(away, away)[..., None]
    if n_classes < 1 + 1e-9:
        return task - away, xp.zeros_like(distance)
    squares = xp.sum(deviations * deviations, axis=-1)
    variance = xp.mean(squares, axis=-1) if weights is None else squares @ weights
    uncertainty = variance[..., None, None] / (n_classes - 1)
    share = 1 - uncertainty / xp.where(distance == 0, xp.ones_like(distance), distance)
    share = xp.where((distance > 0) & (share > 0), share, xp.zeros_like(share))
    return base_mean + share * away, share


def members(labels: Labels) -> Mask:
    """Mark the class of each sample, (S,) -> (S, N)."""
    return np.equal.outer(labels, np.arange(labels.max() + 1))


def class_averages(belonging: Array) -> Array:
    """Turn membership into weights that average the samples of each class, mask (S, N) -> (N, S)."""
    xp = array_namespace(belonging)
    weights = xp.astype(belonging, xp.float64)
    return (weights / xp.sum(weights, axis=0)).T
