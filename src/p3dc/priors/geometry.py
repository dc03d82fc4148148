"""The shape of base classes: how the samples of a class scatter around its mean.

Only directions count, so features of any length and of any sign will do. ``docs/auto.md`` tells what was tried.

Shape letters: B base classes, D features, R axes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc._arrays import is_tensor, read_only, row_blocks, to_device_of
from p3dc.method import l2_normalize

Array = npt.NDArray[np.float64]

N_AXES = 128
ALL_THE_SAME = 1e-5  # squared distance of directions that rounding alone can make
WHITENING = 0.2  # share of the scatter in what samples are whitened by; the rest is round


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over base features, of which those of parts can be merged.

    Attributes
    ----------
    lengths : array of shape (B,)
        Mean length of the rows of each class.
    scatter : array of shape (D, D)
        Mean outer product of the rows' directions, each weighted by the row's length.
    """

    lengths: Array
    scatter: Array

    def __post_init__(self) -> None:
        _protect(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        _protect(self, state)


@dataclass(frozen=True, eq=False)
class Geometry:
    """What base classes tell about samples of classes never seen.

    Attributes
    ----------
    axes : array of shape (R, D)
        Orthonormal directions in which the samples of a class scatter most.
    gains : array of shape (R,)
        What whitening multiplies each of them by.
    rest : float
        What it multiplies all other directions by.
    tightness : float
        Cosine of a whitened sample to the mean of its class, as seen from the mean of all.
    spread : float
        Mean squared cosine of a whitened sample to the mean of another class.
    lengths : array of shape (B,)
        Mean length of the rows of each base class.
    prototypes : array of shape (B, D)
        Whitened mean directions of the base classes.
    """

    axes: Array
    gains: Array
    rest: float
    tightness: float
    spread: float
    lengths: Array
    prototypes: Array

    def __post_init__(self) -> None:
        _protect(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        _protect(self, state)

    @cached_property
    def mean(self) -> Array:
        """The mean of the prototypes."""
        mean: Array = self.prototypes.mean(axis=0)
        return mean

    def to_device_of(self, other: Any) -> "Geometry":
        """Bring all arrays to where another is, NumPy or a device of torch."""
        if not is_tensor(self.axes) and not is_tensor(other):
            return self
        arrays = ("axes", "gains", "lengths", "prototypes")
        return replace(self, **{name: to_device_of(getattr(self, name), other) for name in arrays})

    def whiten(self, directions: Array) -> Array:
        """Shrink directions where classes scatter, (..., D) -> (..., D)."""
        return whiten(directions, self.axes, self.gains, self.rest)


def _protect(owner: Moments | Geometry, state: dict[str, Any] | None = None) -> None:
    """Make all arrays read-only, also those that come out of a pickle."""
    for name, value in (vars(owner) if state is None else state).copy().items():
        object.__setattr__(owner, name, read_only(value) if isinstance(value, np.ndarray) else value)


def whiten(directions: Array, axes: Array, gains: Array, rest: float) -> Array:
    """Multiply what lies along the axes by their gains and all else by ``rest``."""
    return rest * directions + (directions @ axes.T * (gains - rest)) @ axes


def whitened_means(prototypes: Array, lengths: Array, axes: Array, gains: Array, rest: float) -> Array:
    """Whiten the mean directions of base classes, each row weighted by its length."""
    whitened = np.empty_like(prototypes)
    for part, means in _mean_directions(prototypes, lengths):
        whitened[part] = whiten(means, axes, gains, rest)
    return whitened


def _mean_directions(prototypes: Array, lengths: Array) -> Iterator[tuple[slice, Array]]:
    """Yield some base classes at a time."""
    for start, block in row_blocks(prototypes):
        part = slice(start, start + len(block))
        yield part, block / lengths[part, None]


def learn_geometry(prototypes: Array, counts: npt.NDArray[np.int64], moments: Moments) -> Geometry | str:
    """Learn the geometry of base classes, or tell why there is none."""
    from scipy.linalg import eigh  # slow to import, and who only predicts needs none of it

    n_base, n_features = prototypes.shape
    n_rows = int(counts.sum())
    if n_base < 3:
        return f"{n_base} base classes are too few"
    if n_rows == n_base:
        return "each base class has one row, which says nothing of how its samples scatter"
    weights = counts * moments.lengths / (counts @ moments.lengths)
    within = moments.scatter.copy()
    for part, means in _mean_directions(prototypes, moments.lengths):
        within -= (weights[part, None] * means).T @ means
    within *= n_rows / (n_rows - n_base)
    total = np.trace(within)
    if not total > ALL_THE_SAME:
        return "the rows of each base class are all the same"
    round_share = _rounding(within, n_rows - n_base)
    level = total / n_features
    n_axes = min(N_AXES, n_features)
    variances, columns = eigh(within, subset_by_index=(n_features - n_axes, n_features - 1))
    variances = (1 - round_share) * np.maximum(variances, 0) + round_share * level
    others = max((total - variances.sum()) / max(n_features - n_axes, 1), 0.0)

    axes = columns.T.astype(np.float32).astype(np.float64)  # as precise as a file keeps them
    gains, rest = _gain(variances / level), float(_gain(np.asarray(others / level)))
    whitened = whitened_means(prototypes, moments.lengths, axes, gains, rest)
    noise = variances * gains**2
    other_noise = others * rest**2
    within_energy = noise.sum() + (n_features - n_axes) * other_noise
    centre, energy = whitened.mean(axis=0), 0.0
    products, along = np.zeros((n_features, n_features)), np.zeros(n_axes)
    for _, block in row_blocks(whitened):
        centred = block - centre
        energy += np.vecdot(centred, centred).sum()
        ways = l2_normalize(centred)
        products += ways.T @ ways
        along += ((ways @ axes.T) ** 2).sum(axis=0)
    of_means = within_energy * (1 / counts).mean()
    between_energy = energy / (n_base - 1) - of_means
    if not between_energy > max(2 * of_means * np.sqrt(2 / n_base), 1e-3 * within_energy):
        return "their classes do not surely differ by more than their samples do"
    share = between_energy / (between_energy + within_energy)

    apart = ((products**2).sum() - n_base) / (n_base * (n_base - 1))
    stray = other_noise + along / n_base @ (noise - other_noise)
    spread = share * apart + (1 - share) * stray / within_energy
    return Geometry(axes, gains, rest, float(np.sqrt(share)), float(spread), moments.lengths, whitened)


def _gain(variance: Array) -> Array:
    """Shrink a direction by its variance relative to the mean of all."""
    return 1 / np.sqrt(WHITENING * variance + 1 - WHITENING)


def _rounding(covariance: Array, n_free: int) -> float:
    """Share of a round matrix that makes a covariance from few samples most precise: oracle approximating shrinkage."""
    n_features = len(covariance)
    squared_total, squares = np.trace(covariance) ** 2, (covariance**2).sum()
    excess = squares - squared_total / n_features
    if excess <= 0:
        return 1.0
    share = ((1 - 2 / n_features) * squares + squared_total) / ((n_free + 1 - 2 / n_features) * excess)
    return float(np.clip(share, 0, 1))
