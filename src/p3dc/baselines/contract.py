"""The contract of every baseline: an estimator that learns and scores many tasks at once."""

from typing import ClassVar, Self
from zlib import crc32

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from p3dc._arrays import Array, Floats, Labels
from p3dc._validation import check_same_width
from p3dc.adaptive.space import members
from p3dc.features import FeatureSet
from p3dc.priors.prototypes import Priors

FLOATS = [np.float64, np.float32]


class TaskMethod(ClassifierMixin, BaseEstimator):
    """Few-shot classifier that learns many tasks together, or one like any estimator.

    A method defines :meth:`learn_tasks` and :meth:`score_tasks`. All tasks of one call have the same labels in the
    same order, so that classes may differ in their number of samples but tasks may not.

    Attributes
    ----------
    differs : str
        What differs from the publication because features are fixed.

    Shape letters: T tasks, S support, Q queries, N ways, D features.
    """

    differs: ClassVar[str] = "nothing"

    @property
    def takes_roots(self) -> bool:
        """Whether it takes a root or a logarithm of features, which may not be negative then."""
        return bool(getattr(self, "power", 1) != 1)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.takes_roots
        return tags

    def rows_of(self, features: FeatureSet) -> Floats:
        """Return the rows to learn from and to classify, (n, D): the features, unless a method needs more of photos."""
        return features.features

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Learn each task from its support.

        Parameters
        ----------
        support : array of shape (T, S, D)
        labels : array of shape (S,)
            Numbers from 0 to N - 1, every one of them present.

        Returns
        -------
        tuple of arrays
            What :meth:`score_tasks` needs; the first axis of each is T.
        """
        raise NotImplementedError

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Score every class for every query; the largest is the prediction.

        Parameters
        ----------
        state : tuple of arrays
            From :meth:`learn_tasks`.
        queries : array of shape (T, Q, D)

        Returns
        -------
        array of shape (T, Q, N)
        """
        raise NotImplementedError

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Self:
        """Learn one task.

        Parameters
        ----------
        X : array of shape (n_support, n_features)
        y : array of shape (n_support,)

        Returns
        -------
        self
        """
        support, labels = validate_data(self, X, y, dtype=FLOATS)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        self.state_ = self.learn_tasks(support[None], codes)
        return self

    def decision_function(self, X: npt.ArrayLike) -> Array:
        """Score every class, (n_queries, n_classes), or the second minus the first for two classes."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: npt.ArrayLike) -> Array:
        """Return the class of the largest score for each query."""
        best = self._scores(X).argmax(axis=1)
        labels: Array = self.classes_[best]
        return labels

    def _scores(self, X: npt.ArrayLike) -> Array:
        check_is_fitted(self)
        queries = validate_data(self, X, reset=False, dtype=FLOATS)
        scores: Array = self.score_tasks(self.state_, queries[None])[0]
        return scores


def centred(features: Array, priors: Priors) -> Array:
    """Subtract the mean of all base features."""
    check_same_width(features, "the features", priors.prototypes, "the priors")
    return np.asarray(features - priors.mean.astype(features.dtype))


def class_means(samples: Array, labels: Labels) -> Array:
    """Average the samples of each class, (T, S, D) -> (T, N, D)."""
    own = members(labels)
    means: Array = (own / own.sum(axis=0)).T.astype(samples.dtype) @ samples
    return means


def in_range(queries: Array, means: Array) -> tuple[Array, Array]:
    """Multiply plain queries and means of a task by one power of two where their products would leave the range.

    It changes no order of scores. Usual features stay as they are.

    (T, Q, D), (T, N, D) -> (T, Q, D), (T, N, D)
    """
    limits = np.finfo(means.dtype)
    with np.errstate(over="ignore"):
        squares = np.vecdot(means, means)
    if ((squares > limits.tiny / limits.eps) & (squares < limits.max * limits.eps)).all():
        return queries, means
    largest = np.abs(means).max(axis=(1, 2), keepdims=True)
    power = -np.frexp(largest)[1]  # 0 for means of zeros
    return np.ldexp(queries, power), np.ldexp(means, power)


def negative_distances(queries: Array, means: Array) -> Array:
    """Compute negative squared distances, up to a constant of each query, (T, Q, D), (T, N, D) -> (T, Q, N)."""
    return np.asarray(queries @ (2 * means).mT - np.vecdot(means, means)[:, None])


def task_generators(support: Array, random_state: int) -> list[np.random.Generator]:
    """Make one generator for each task, seeded by its samples, so that its result depends on no other task.

    Exponents are left out of the seed, so that it is the same for features that are twice as long.
    """
    return [np.random.default_rng([random_state, crc32(np.frexp(task)[0].tobytes())]) for task in support]
