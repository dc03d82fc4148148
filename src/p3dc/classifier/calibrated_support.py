"""One task's support, calibrated with weights that are given or chosen for it, and queries scored by it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from p3dc import method
from p3dc._arrays import as_numpy, to_device_of
from p3dc.adaptive import rule as auto
from p3dc.priors.geometry import Geometry
from p3dc.priors.prototypes import Priors

Array = npt.NDArray[Any]
Labels = npt.NDArray[np.int64]

QUERY_BYTES = 2**26
"""What the prototypes of one block of queries may take."""

MOST_STRANGERS = 20
"""How many classes in turn are strangers to the others."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """A calibrated support and the way for queries to come where it is.

    Attributes
    ----------
    samples : array of shape (S, D)
        The calibrated support, normalised.
    labels : array of shape (S,)
        The class of each sample, a number from 0 on.
    alpha, beta, scale : float
        What it was calibrated with.
    n_nearest : int
        How many base classes could pull each sample, M.
    transformed, prototypes : arrays of shape (S, D) and (B, D)
        The samples that were pulled and the base prototypes that pulled them; None where nothing did.
    ends : pair of arrays of shape (S, D)
        Both endpoints of each prepared sample; None where features are not prepared.
    geometry, centre
        How features were whitened and centred; None where they were not.
    relevance : float or None
        How well the priors fit the task, where that is known.
    alone : bool
        Whether features are normalised before all else, so that their length does not matter.
    """

    samples: Array
    labels: Labels
    alpha: float
    beta: float
    scale: float
    n_nearest: int
    transformed: Array | None = None
    prototypes: Array | None = None
    ends: tuple[Array, Array] | None = None
    geometry: Geometry | None = None
    centre: Array | None = None
    relevance: float | None = None
    alone: bool = False

    def to_device_of(self, queries: Array) -> "Calibration":
        """Bring what queries are compared with to where they are, in their type."""
        return replace(
            self,
            samples=to_device_of(self.samples, queries, queries.dtype),
            centre=None if self.centre is None else to_device_of(self.centre, queries),
            geometry=None if self.geometry is None else self.geometry.to_device_of(queries),
        )

    def prepare(self, queries: Array) -> Array:
        """Bring queries to where the support is."""
        if not self.alone:
            return queries
        directions = _directions(queries)
        if self.geometry is None:
            return directions
        prepared: Array = auto.prepare(self.geometry.whiten(directions), self.centre)
        return prepared

    def at(self, alpha: float, beta: float) -> "Calibration":
        """Move prepared samples to another point of their triangles."""
        samples = self.samples if self.ends is None else method.unify(self.transformed, *self.ends, alpha, beta)
        return replace(self, samples=samples, alpha=alpha, beta=beta)

    def corners(self) -> Array:
        """Give the triangle of each prepared sample, x̄, s̄ and t̄; all the same where nothing pulls, (S, 3, D)."""
        if self.ends is None or self.transformed is None:
            return np.repeat(self.samples[:, None], 3, axis=1)
        return np.stack([self.transformed, *map(method.l2_normalize, self.ends)], axis=1)

    def cosines(self, queries: Array, attention: method.Attention = "raw") -> Array:
        """Score every class for every query, (Q, D) -> (Q, N), a bounded number of queries at a time."""
        by_class, present = _by_class(self.samples, self.labels)
        n_way, n_shot, n_features = by_class.shape
        size = max(1, QUERY_BYTES // (8 * n_way * (n_features + n_shot)))
        blocks = [
            method.classify(self.prepare(queries[start : start + size]), by_class, present, attention)
            for start in range(0, len(queries), size)
        ]
        joined: Array = array_namespace(queries).concat(blocks)
        return joined

    def pulls(self) -> tuple[Array, Array, Array]:
        """Tell what pulls each sample on its own and with its task, as (S, 2, B).

        Returns
        -------
        similarities : array of shape (S, B)
        chosen : mask of shape (S, 2, B)
            Sample level, then task level.
        weights : array of shape (S, 2, B)
        """
        similarities = method.prior_similarities(self.transformed, self.prototypes)
        nearest = method.nearest_priors(similarities, self.n_nearest)
        xp = array_namespace(nearest)
        chosen = xp.stack([nearest, xp.broadcast_to(method.task_priors(nearest), nearest.shape)], axis=1)
        return similarities, chosen, method.prior_weights(similarities[:, None], chosen, self.scale)

    @property
    def temperature(self) -> float:
        """What cosines are divided by before a softmax."""
        return auto.temperature(self.shots, prepared=self.geometry is not None)

    @property
    def shots(self) -> float:
        """The number of samples of a class; the smallest counts most."""
        return auto.typical_shots(members(self.labels))


def stranger_threshold(
    support: Array,
    labels: Labels,
    calibrate: Callable[[Array, Labels], Calibration],
    share: float,
    attention: method.Attention = "raw",
) -> float:
    """Find the largest cosine that this share of samples of other classes stays below.

    Each class in turn is a stranger to the others, which are calibrated without it. Of many classes some have a turn.

    Parameters
    ----------
    support : array of shape (S, D)
    labels : array of shape (S,)
    calibrate : callable
        Calibrates some of the support with some of the labels.
    share : float
    attention
        As in :mod:`p3dc.method`.
    """
    found = []
    spread = None
    for others, left in class_turns(labels):
        kept, strange = (support[to_device_of(rows, support)] for rows in (others, ~others))
        calibrated = calibrate(kept, left)
        found.append(as_numpy(calibrated.cosines(strange, attention)).ravel())
        spread = None if calibrated.geometry is None else calibrated.geometry.spread
    return auto.stranger_threshold(np.concatenate(found), int(labels.max()) + 1, share, spread)


def class_turns(labels: Labels) -> Iterator[tuple[npt.NDArray[np.bool_], Labels]]:
    """Leave out each class in turn, or some of many: mark all other samples, (S,), and number their classes anew."""
    n_way = int(labels.max()) + 1
    for left_out in evenly(n_way, MOST_STRANGERS):
        others = labels != left_out
        yield others, np.where(labels > left_out, labels - 1, labels)[others]


def evenly(n_items: int, most: int) -> Labels:
    """Choose as many items as may be, from the first to the last at equal distances."""
    return np.linspace(0, n_items - 1, min(n_items, most)).round().astype(np.int64)


def members(labels: Labels) -> npt.NDArray[np.bool_]:
    """Mark the class of each sample, (S,) -> (S, N)."""
    return np.equal.outer(labels, np.arange(labels.max() + 1))


def _by_class(samples: Array, labels: Labels) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Lay samples out as (N, K, D), K the largest class, with a mask of the places that are filled."""
    counts = np.bincount(labels)
    order = np.argsort(labels, kind="stable")
    place = np.arange(counts.max())
    present = place < counts[:, None]
    first = (np.cumsum(counts) - counts)[:, None]
    rows = order[first + np.where(present, place, 0)]
    return samples[to_device_of(rows, samples)], to_device_of(present, samples)


def _directions(rows: Array) -> Array:
    xp = array_namespace(rows)
    directions: Array = method.l2_normalize(xp.astype(rows, xp.float64))
    return directions


def calibrate_as_told(
    support: Array,
    labels: Labels,
    priors: Priors | None,
    *,
    alpha: float,
    beta: float,
    n_nearest: int,
    power: float,
    scale: float,
) -> Calibration:
    """Calibrate as the paper does, or only normalise where there are no priors."""
    normalised = method.l2_normalize(support)
    if priors is None:
        return Calibration(normalised, labels, alpha, beta, scale, n_nearest)
    prototypes = to_device_of(priors.prototypes, support, support.dtype)
    ends = method.endpoints(support, prototypes, n_nearest=n_nearest, power=power, scale=scale)
    samples = method.unify(normalised, *ends, alpha, beta)
    return Calibration(samples, labels, alpha, beta, scale, n_nearest, method.tukey(support, power), prototypes)


def calibrate_alone(
    support: Array,
    labels: Labels,
    priors: Priors | None,
    *,
    point: tuple[float, float] | None = None,
    n_nearest: int = 5,
) -> Calibration:
    """Calibrate prepared features, with the point (α, β) that suits the task where none is given.

    Without a geometry nothing can be chosen, and the support is only normalised.

    Parameters
    ----------
    support : array of shape (S, D)
    labels : array of shape (S,)
        The class of each sample, a number from 0 on.
    priors : Priors, optional
    point : (alpha, beta), optional
    n_nearest : int
    """
    directions = _directions(support)
    if priors is None or priors.geometry is None:
        return Calibration(directions, labels, 0.0, 0.0, auto.SHARPNESS, n_nearest, alone=True)
    geometry, belonging = priors.geometry.to_device_of(support), members(labels)
    averages = auto.class_averages(to_device_of(belonging, support))
    whitened = geometry.whiten(directions)
    centre = auto.task_centre(averages @ whitened, geometry.mean)
    prepared, prototypes = auto.prepare(whitened, centre), auto.prepare(geometry.prototypes, centre)
    ends = method.endpoints(prepared, prototypes, n_nearest=n_nearest, power=1, scale=auto.SHARPNESS)
    agreed = auto.agreement(prepared, ends[1], averages)
    if point is None:
        shots = auto.typical_shots(belonging)
        point = 0.0, auto.pull_weight(agreed, prepared, ends[1], shots, geometry.tightness).item()
    samples = method.unify(prepared, *ends, *point)
    return Calibration(
        samples,
        labels,
        *point,
        auto.SHARPNESS,
        n_nearest,
        transformed=prepared,
        prototypes=prototypes,
        ends=ends,
        geometry=geometry,
        centre=centre,
        relevance=agreed.item(),
        alone=True,
    )
