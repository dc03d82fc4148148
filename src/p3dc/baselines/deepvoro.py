"""DeepVoro: distances to class means averaged over several transforms of the same features, its "views"."""

from collections.abc import Sequence

import numpy as np

from p3dc._arrays import Array, Labels
from p3dc._validation import check_power
from p3dc.baselines.contract import TaskMethod, class_means
from p3dc.features import FeatureSet
from p3dc.method import l2_normalize

POWERS = (0.5, 0.75, 1.0)
N_SHIFTS = 5
N_VIEWS = len(POWERS) + N_SHIFTS
SHIFT = 0.02
"""The smallest shift; the others are its multiples."""

ONE_SHOT_SHIFTS = {"CUB": 0.5, "tieredImageNet": 0.1}
"""The smallest shift of the publication's code with one shot, where it is another."""


def view(features: Array, number: int, shift: float = SHIFT) -> Array:
    """Transform features as view ``number`` does: normalise, then take a power or the logarithm after a shift."""
    check_power(features, 0.5, "features")
    normalised = l2_normalize(features)
    if number < len(POWERS):
        return np.asarray(normalised ** POWERS[number])
    return np.asarray(np.log(normalised + np.asarray((number - len(POWERS) + 1) * shift, dtype=features.dtype)))


def distances(queries: Array, points: Array) -> Array:
    """Compute Euclidean distances, (..., Q, D), (..., P, D) -> (..., Q, P)."""
    squared = np.vecdot(queries, queries)[..., None] + np.vecdot(points, points)[..., None, :] - 2 * queries @ points.mT
    return np.asarray(np.sqrt(np.maximum(squared, 0)))


class DeepVoro(TaskMethod):
    """Smallest mean distance to the class means over several views.

    The published method also makes views from augmented images; here features are fixed, so that 8 of its 512 views
    remain.

    Parameters
    ----------
    views : sequence of int, default=(0, …, 7)
        Which views to use: those that are best on validation tasks.
    shift : float, default=0.02
        The smallest of the five shifts before the logarithm; the others are its multiples. With one shot the
        publication's code starts at 0.5 on CUB and at 0.1 on tieredImageNet.
    """

    differs = "8 of its 512 views; the others need new images"

    def __init__(self, views: Sequence[int] = tuple(range(N_VIEWS)), *, shift: float = SHIFT) -> None:
        self.views = views
        self.shift = shift

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Average each class in each view."""
        return tuple(class_means(view(support, number, self.shift), labels) for number in self.views)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Average the distances over the views."""
        pairs = zip(self.views, state, strict=True)
        each = [distances(view(queries, number, self.shift), means) for number, means in pairs]
        return np.asarray(-np.mean(each, axis=0))


class DeepVoroPP(TaskMethod):
    """DeepVoro++: one view, and the similarity of query and class in their distances to nearby base classes.

    The surrogate of a point is its distances to the base prototypes that are among the nearest of any class of the
    task, normalised. The published method averages over many views; this is one of them.

    Parameters
    ----------
    base : FeatureSet
    number : int, default=0
        The view.
    n_nearest : int, default=5
        Base prototypes near each class.
    weight : float, default=1.0
        Weight of the surrogate against the distance.
    shift : float, default=0.02
        As in :class:`DeepVoro`.
    """

    differs = "one view"

    def __init__(
        self, base: FeatureSet, *, number: int = 0, n_nearest: int = 5, weight: float = 1.0, shift: float = SHIFT
    ) -> None:
        self.base = base
        self.number = number
        self.n_nearest = n_nearest
        self.weight = weight
        self.shift = shift

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Find class means, the base prototypes near the task, and the surrogates of the means."""
        means = class_means(view(support, self.number, self.shift), labels)
        to_base = distances(means, self._prototypes().astype(support.dtype))
        n_nearest = min(self.n_nearest, to_base.shape[-1])
        order = np.argsort(to_base, axis=-1, kind="stable")[..., :n_nearest]
        near = np.zeros(to_base.shape, dtype=bool)
        np.put_along_axis(near, order, True, axis=-1)
        union = np.asarray(near.any(axis=1, keepdims=True))
        return means, union, l2_normalize(np.where(union, to_base, 0))

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Add distance and surrogate distance, each as a share of its sum over the classes."""
        means, union, surrogates = state
        seen = view(queries, self.number, self.shift)
        own = np.where(union, distances(seen, self._prototypes().astype(queries.dtype)), 0)
        first = distances(seen, means)
        second = distances(l2_normalize(own), surrogates) ** 2
        return np.asarray(-(_share(first) + self.weight * _share(second)))

    def _prototypes(self) -> Array:
        if not hasattr(self, "_means"):
            rows, labels = self.base.features, self.base.labels
            rows = rows.astype(np.float32) if rows.dtype == np.float16 else rows
            classes = range(len(self.base.class_names))
            self._means = np.stack([view(rows[labels == c], self.number, self.shift).mean(axis=0) for c in classes])
        return np.asarray(self._means)


def _share(values: Array) -> Array:
    total = values.sum(axis=-1, keepdims=True)
    return np.asarray(values / np.where(total == 0, 1, total))
