"""The geometry of base classes: how the samples of a class scatter around its mean.

Only directions count, so features of any length and sign will do. ``docs/explanation/auto.md`` shows what was tried.

Shape letters: B base classes, D features, R axes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from p3dc._arrays import Array, Mask, is_tensor, read_only, row_blocks, to_device_of
from p3dc._validation import is_number
from p3dc.method import l2_normalize

N_AXES = 128
SCATTERS = ("scatter", "cluster_scatter")
ALL_THE_SAME = 1e-5  # squared distance of directions that rounding alone can make
WHITENING = 0.2  # share of the within-class scatter in the whitening covariance; the rest is isotropic
SHARED = 2.0  # squared tightness over that of clusters; empirical, chosen on validation classes
TIGHTEST = 0.9  # squared tightness that this factor does not exceed
NUMBERS = ("rest", "tightness", "spread")
LARGEST_GAIN = 10.0  # a gain is at most the root of 1 / (1 - WHITENING), and an entry of an axis at most 1


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of base features. Those of parts can be merged.

    Attributes
    ----------
    lengths : array of shape (B,)
        Mean length of the rows of each class.
    scatter : array of shape (D, D), or None
        Mean outer product of the directions of all rows of labelled classes, each weighted by the row's length.
    cluster_scatter : array of shape (D, D), or None
        The same of the rows of clusters, kept apart because clusters are tighter than classes.
    """

    lengths: Array
    scatter: Array | None
    cluster_scatter: Array | None = None

    def __post_init__(self) -> None:
        _protect(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        _protect(self, state)

    @classmethod
    def from_arrays(cls, prototypes: Array, arrays: Mapping[str, npt.NDArray[Any]]) -> "Moments":
        """Read the moments of prototypes from named arrays."""
        square = prototypes.shape[1:] * 2
        scatters = {name: _of_shape(arrays[name], square) for name in SCATTERS if name in arrays}
        lengths = _of_shape(arrays["lengths"], prototypes.shape[:1])
        if not (lengths > 0).all() or not all(np.isfinite(each).all() for each in (lengths, *scatters.values())):
            raise ValueError("it has numbers that are not finite, or lengths that are not positive")
        return cls(lengths, scatters.get("scatter"), scatters.get("cluster_scatter"))

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Take the moments apart: arrays by name."""
        scatters = {name: getattr(self, name) for name in SCATTERS}
        known = {name: scatter.astype(np.float32) for name, scatter in scatters.items() if scatter is not None}
        return {"lengths": self.lengths} | known


@dataclass(frozen=True, eq=False)
class Geometry:
    """What base classes predict about samples of classes never seen.

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

    @cached_property
    def squared_lengths(self) -> Array:
        """The squared lengths of the prototypes, (B,)."""
        return array_namespace(self.prototypes).vecdot(self.prototypes, self.prototypes)

    def to_arrays(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, float]]:
        """Take the geometry apart: arrays by name, and numbers by name."""
        arrays: dict[str, npt.NDArray[Any]] = {
            "lengths": self.lengths,
            "axes": self.axes.astype(np.float32),
            "gains": self.gains,
        }
        return arrays, {name: getattr(self, name) for name in NUMBERS}

    @classmethod
    def from_arrays(
        cls, prototypes: Array, arrays: Mapping[str, npt.NDArray[Any]], numbers: Mapping[str, Any]
    ) -> "Geometry":
        """Put together what :meth:`to_arrays` took apart, with the prototypes that it belongs to."""
        lengths, gains = _of_shape(arrays["lengths"], prototypes.shape[:1]), arrays["gains"]
        axes = _of_shape(arrays["axes"], gains.shape + prototypes.shape[1:])
        if not all(is_number(numbers[name]) for name in NUMBERS):
            raise ValueError("it has something other than numbers")
        found = {name: float(numbers[name]) for name in NUMBERS}
        positive = (*lengths, *gains, *found.values())
        small = (*gains, *found.values(), *abs(axes).max(axis=1, initial=0))
        if not (found["tightness"] < 1 and all(0 < each < np.inf for each in positive) and max(small) < LARGEST_GAIN):
            raise ValueError("it has numbers that no geometry has")
        with np.errstate(all="ignore"):
            whitened = whitened_means(prototypes, lengths, axes, gains, found["rest"])
        if not all(np.isfinite(each).all() for each in (axes, gains, lengths, whitened)):
            raise ValueError("it has numbers that are not finite, or make others infinite")
        return cls(axes, gains, **found, lengths=lengths, prototypes=whitened)

    def to_device_of(self, other: Any) -> "Geometry":
        """Move all arrays to the library and device of another."""
        if not is_tensor(self.axes) and not is_tensor(other):
            return self
        arrays = ("axes", "gains", "lengths", "prototypes")
        return replace(self, **{name: to_device_of(getattr(self, name), other) for name in arrays})

    def whiten(self, directions: Array) -> Array:
        """Shrink directions where classes scatter, (..., D) -> (..., D)."""
        xp = array_namespace(directions)
        axes, gains = (xp.astype(each, directions.dtype, copy=False) for each in (self.axes, self.gains))
        return whiten(directions, axes, gains, self.rest)


def _of_shape(array: npt.NDArray[Any], shape: tuple[int, ...]) -> Array:
    if array.shape != shape:
        raise ValueError(f"an array has shape {array.shape} instead of {shape}")
    return array.astype(np.float64)


def _protect(owner: Moments | Geometry, state: dict[str, Any] | None = None) -> None:
    """Make all arrays read-only, also when they come from a pickle."""
    for name, value in (vars(owner) if state is None else state).copy().items():
        object.__setattr__(owner, name, read_only(value) if isinstance(value, np.ndarray) else value)


def whiten(directions: Array, axes: Array, gains: Array, rest: float) -> Array:
    """Multiply the components along the axes by their gains and the remainder by ``rest``."""
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


def learn_geometry(
    prototypes: Array, counts: npt.NDArray[np.int64], moments: Moments, clusters: Mask
) -> Geometry | str:
    """Learn the geometry of base classes, or return the reason why there is none.

    It is learned from the labelled classes, and from clusters only where labelled classes have none.
    """
    reason = ""
    for scatter, own, correct in (
        (moments.scatter, ~clusters, False),
        (moments.cluster_scatter, clusters, True),
    ):
        if scatter is None:
            continue
        rows = slice(None) if own.all() else own  # a slice copies nothing
        found = _learn(prototypes[rows], counts[rows], moments.lengths[rows], scatter)
        if isinstance(found, str):
            reason = reason or found
            continue
        if not own.all():
            whitened = whitened_means(prototypes, moments.lengths, found.axes, found.gains, found.rest)
            found = replace(found, lengths=moments.lengths, prototypes=whitened)
        return replace(found, tightness=_tightness_of_classes(found.tightness)) if correct else found
    return reason


def _tightness_of_classes(tightness: float) -> float:
    """Correct a tightness that was learned from clusters.

    k-means joins rows that are alike in anything, so a new sample agrees with its nearest clusters in pose and
    background too. Sample and clusters seem to agree on the class more than they do, and β would be too large where
    several shots know the class well. The factor on the squared tightness is empirical.
    """
    return float(np.sqrt(max(tightness**2, min(SHARED * tightness**2, TIGHTEST))))


def _learn(prototypes: Array, counts: npt.NDArray[np.int64], lengths: Array, scatter: Array) -> Geometry | str:
    """Learn the geometry of classes from their means and the scatter of their rows."""
    from scipy.linalg import eigh  # slow to import, and not needed to predict

    n_base, n_features = prototypes.shape
    n_rows = int(counts.sum())
    if n_base < 3:
        return f"{n_base} base classes are too few"
    if n_rows == n_base:
        return "each base class has one row, which says nothing of how its samples scatter"
    weights = counts * lengths / (counts @ lengths)
    within = scatter.copy()
    for part, means in _mean_directions(prototypes, lengths):
        within -= (weights[part, None] * means).T @ means
    within *= n_rows / (n_rows - n_base)
    total = np.trace(within)
    if not total > ALL_THE_SAME:
        return "the rows of each base class are all the same"
    isotropic = _isotropic_share(within, n_rows - n_base)
    level = total / n_features
    n_axes = min(N_AXES, n_features)
    variances, columns = eigh(within, subset_by_index=(n_features - n_axes, n_features - 1))
    variances = (1 - isotropic) * np.maximum(variances, 0) + isotropic * level
    others = max((total - variances.sum()) / max(n_features - n_axes, 1), 0.0)

    axes = columns.T.astype(np.float32).astype(np.float64)  # as precise as a file keeps them
    gains, rest = _gain(variances / level), float(_gain(np.asarray(others / level)))
    whitened = whitened_means(prototypes, lengths, axes, gains, rest)
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
    return Geometry(axes, gains, rest, float(np.sqrt(share)), float(spread), lengths, whitened)


def _gain(variance: Array) -> Array:
    """Shrink a direction by its variance relative to the mean of all."""
    return 1 / np.sqrt(WHITENING * variance + 1 - WHITENING)


def _isotropic_share(covariance: Array, n_free: int) -> float:
    """Return the share of an isotropic matrix in a covariance from few samples: oracle approximating shrinkage."""
    n_features = len(covariance)
    squared_total, squares = np.trace(covariance) ** 2, (covariance**2).sum()
    excess = squares - squared_total / n_features
    if excess <= 0:
        return 1.0
    share = ((1 - 2 / n_features) * squares + squared_total) / ((n_free + 1 - 2 / n_features) * excess)
    return float(np.clip(share, 0, 1))
