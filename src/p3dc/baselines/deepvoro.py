"""DeepVoro: distances to class means averaged over several transforms of the same features, its "views".

Rows may hold the features of several views of a photo, one after the other. Each of them then has all transforms: view
number n is transform n % 8 of photo view n // 8.
"""

from collections.abc import Sequence

import numpy as np

from p3dc._arrays import Array, Floats, Labels
from p3dc._validation import check_power
from p3dc.baselines.contract import TaskMethod, class_means
from p3dc.errors import InputError
from p3dc.features import FeatureSet
from p3dc.method import l2_normalize

POWERS = (0.5, 0.75, 1.0)
N_SHIFTS = 5
N_VIEWS = len(POWERS) + N_SHIFTS
SHIFT = 0.02
"""The smallest shift; the others are its multiples."""

ONE_SHOT_SHIFTS = {"CUB": 0.5, "tieredImageNet": 0.1}
"""The smallest shift of the publication's code with one shot, where it is another."""


def view(features: Array, number: int, n_photo_views: int = 1, shift: float = SHIFT) -> Array:
    """Transform features as view ``number`` does: normalise, then take a power or the logarithm after a shift."""
    photo_view, number = divmod(number, N_VIEWS)
    features = features.reshape(*features.shape[:-1], n_photo_views, -1)[..., photo_view, :]
    check_power(features, 0.5, "features")
    normalised = l2_normalize(features)
    if number < len(POWERS):
        return np.asarray(normalised ** POWERS[number])
    return np.asarray(np.log(normalised + np.asarray((number - len(POWERS) + 1) * shift, dtype=features.dtype)))


def photo_rows(features: FeatureSet, n_photo_views: int) -> Floats:
    """Return the features, or those of several views of each photo one after the other, (n, V · D)."""
    if n_photo_views == 1:
        return features.features
    if features.views is None or features.views.shape[1] != n_photo_views:
        there = 1 if features.views is None else features.views.shape[1]
        raise InputError(
            f"the photos have {there} views, not {n_photo_views}. Extract all of them with --views {n_photo_views}."
        )
    return features.views.reshape(len(features), -1)


def distances(queries: Array, points: Array) -> Array:
    """Compute Euclidean distances, (..., Q, D), (..., P, D) -> (..., Q, P)."""
    squared = np.vecdot(queries, queries)[..., None] + np.vecdot(points, points)[..., None, :] - 2 * queries @ points.mT
    return np.asarray(np.sqrt(np.maximum(squared, 0)))


class DeepVoro(TaskMethod):
    """Smallest mean distance to the class means over several views.

    The published method has 512 views: 8 transforms of the features of 64 augmented images. Fixed features have 8, and
    photos that were extracted with V views have 8 · V.

    Parameters
    ----------
    views : sequence of int, default=(0, …, 7)
        Which views to use: those that are best on validation tasks.
    n_photo_views : int, default=1
        Views of a photo in each row, :attr:`FeatureSet.views`.
    shift : float, default=0.02
        The smallest of the five shifts before the logarithm; the others are its multiples. With one shot the
        publication's code starts at 0.5 on CUB and at 0.1 on tieredImageNet.
    """

    differs = "8 of its 512 views for each view of a photo that was extracted (`p3dc extract --views`)"
    takes_roots = True

    def __init__(
        self, views: Sequence[int] = tuple(range(N_VIEWS)), *, n_photo_views: int = 1, shift: float = SHIFT
    ) -> None:
        self.views = views
        self.n_photo_views = n_photo_views
        self.shift = shift

    def rows_of(self, features: FeatureSet) -> Floats:
        """Return the features of all views of each photo."""
        return photo_rows(features, self.n_photo_views)

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Average each class in each view."""
        return tuple(class_means(self._view(support, number), labels) for number in self.views)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Average the distances over the views."""
        each = [distances(self._view(queries, number), means) for number, means in zip(self.views, state, strict=True)]
        return np.asarray(-np.mean(each, axis=0))

    def _view(self, features: Array, number: int) -> Array:
        return view(features, number, self.n_photo_views, self.shift)


class DeepVoroPP(TaskMethod):
    """DeepVoro++: one transform, and the similarity of query and class in their distances to nearby base classes.

    The surrogate of a point is its distances to the base prototypes that are among the nearest of any class of the
    task, normalised. The scores are averaged over the views of a photo, if there are several.

    Parameters
    ----------
    base : FeatureSet
    number : int, default=0
        The transform.
    n_nearest : int, default=5
        Base prototypes near each class.
    weight : float, default=1.0
        Weight of the surrogate against the distance.
    n_photo_views : int, default=1
        Views of a photo in each row, :attr:`FeatureSet.views`.
    shift : float, default=0.02
        As in :class:`DeepVoro`.
    """

    differs = "one transform, of each view of a photo that was extracted (`p3dc extract --views`)"
    takes_roots = True

    def __init__(
        self,
        base: FeatureSet,
        *,
        number: int = 0,
        n_nearest: int = 5,
        weight: float = 1.0,
        n_photo_views: int = 1,
        shift: float = SHIFT,
    ) -> None:
        self.base = base
        self.number = number
        self.n_nearest = n_nearest
        self.weight = weight
        self.n_photo_views = n_photo_views
        self.shift = shift

    def rows_of(self, features: FeatureSet) -> Floats:
        """Return the features of all views of each photo."""
        return photo_rows(features, self.n_photo_views)

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Find class means, the base prototypes near the task, and the surrogates of the means, for each photo view."""
        return tuple(
            part for photo_view in range(self.n_photo_views) for part in self._learn(support, labels, photo_view)
        )

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Add distance and surrogate distance, each as a share of its sum over the classes."""
        each = [self._score(state[3 * v : 3 * v + 3], queries, v) for v in range(self.n_photo_views)]
        return np.asarray(np.mean(each, axis=0))

    def _learn(self, support: Array, labels: Labels, photo_view: int) -> tuple[Array, ...]:
        means = class_means(self._view(support, photo_view), labels)
        to_base = distances(means, self._prototypes(photo_view).astype(support.dtype))
        n_nearest = min(self.n_nearest, to_base.shape[-1])
        order = np.argsort(to_base, axis=-1, kind="stable")[..., :n_nearest]
        near = np.zeros(to_base.shape, dtype=bool)
        np.put_along_axis(near, order, True, axis=-1)
        union = np.asarray(near.any(axis=1, keepdims=True))
        return means, union, l2_normalize(np.where(union, to_base, 0))

    def _score(self, state: tuple[Array, ...], queries: Array, photo_view: int) -> Array:
        means, union, surrogates = state
        seen = self._view(queries, photo_view)
        own = np.where(union, distances(seen, self._prototypes(photo_view).astype(queries.dtype)), 0)
        first = distances(seen, means)
        second = distances(l2_normalize(own), surrogates) ** 2
        return np.asarray(-(_share(first) + self.weight * _share(second)))

    def _view(self, features: Array, photo_view: int) -> Array:
        return view(features, N_VIEWS * photo_view + self.number, self.n_photo_views, self.shift)

    def _prototypes(self, photo_view: int) -> Array:
        if not hasattr(self, "_means"):
            rows, labels = photo_rows(self.base, self.n_photo_views), self.base.labels
            rows = rows.astype(np.float32) if rows.dtype == np.float16 else rows
            own = [rows[labels == c] for c in range(len(self.base.class_names))]
            self._means = [
                np.stack([self._view(each, v).mean(axis=0) for each in own]) for v in range(self.n_photo_views)
            ]
        return np.asarray(self._means[photo_view])


def _share(values: Array) -> Array:
    total = values.sum(axis=-1, keepdims=True)
    return np.asarray(values / np.where(total == 0, 1, total))
