"""DeepVoro: distances to class means averaged over several transforms of the same features, its "views"."""

from collections.abc import Sequence

import numpy as np

from p3dc._arrays import Array, Labels
from p3dc._validation import check_power
from p3dc.baselines.contract import TaskMethod, class_means
from p3dc.features import FeatureSet
from p3dc.method import l2_normalize

POWERS = (0.5, 0.75, 1.0)
SHIFTS = tuple(0.02 * j for j in range(1, 6))
N_VIEWS = len(POWERS) + len(SHIFTS)


def view(features: Array, number: int) -> Array:
    """Transform features as view ``number`` does: normalise, then take a power or the logarithm after a shift."""
    check_power(features, 0.5, "features")
    normalised = l2_normalize(features)
    if number < len(POWERS):
        return np.asarray(normalised ** POWERS[number])
    return np.asarray(np.log(normalised + np.asarray(SHIFTS[number - len(POWERS)], dtype=features.dtype)))


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
    """

    differs = "8 of its 512 views; the others need new images"
    takes_roots = True

    def __init__(self, views: Sequence[int] = tuple(range(N_VIEWS))) -> None:
        self.views = views

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Average each class in each view."""
        return tuple(class_means(view(support, number), labels) for number in self.views)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Average the distances over the views."""
        each = [distances(view(queries, number), means) for number, means in zip(self.views, state, strict=True)]
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
    """

    differs = "one view"
    takes_roots = True

    def __init__(self, base: FeatureSet, *, number: int = 0, n_nearest: int = 5, weight: float = 1.0) -> None:
        self.base = base
        self.number = number
        self.n_nearest = n_nearest
        self.weight = weight

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Find class means, the base prototypes near the task, and the surrogates of the means."""
        means = class_means(view(support, self.number), labels)
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
        seen = view(queries, self.number)
        own = np.where(union, distances(seen, self._prototypes().astype(queries.dtype)), 0)
        first = distances(seen, means)
        second = distances(l2_normalize(own), surrogates) ** 2
        return np.asarray(-(_share(first) + self.weight * _share(second)))

    def _prototypes(self) -> Array:
        if not hasattr(self, "_means"):
            rows, labels = self.base.features, self.base.labels
            rows = rows.astype(np.float32) if rows.dtype == np.float16 else rows
            classes = range(len(self.base.class_names))
            self._means = np.stack([view(rows[labels == c], self.number).mean(axis=0) for c in classes])
        return np.asarray(self._means)


def _share(values: Array) -> Array:
    total = values.sum(axis=-1, keepdims=True)
    return np.asarray(values / np.where(total == 0, 1, total))
