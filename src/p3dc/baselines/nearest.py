"""Nearest class mean on plain, normalised and centred features: NN, L2N and CL2N of SimpleShot."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from p3dc.checks import check_same_width
from p3dc.method import l2_normalize
from p3dc.priors import Priors

Array = npt.NDArray[Any]


class L2N(ClassifierMixin, BaseEstimator):
    """Nearest class mean of L2-normalised features, by Euclidean distance.

    Examples
    --------
    >>> from p3dc.baselines import L2N
    >>> L2N().fit([[1.0, 0.0], [0.0, 1.0]], ["wren", "robin"]).predict([[1.0, 3.0]])
    array(['robin'], dtype='<U5')
    """

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Self:
        """Average the transformed samples of each class."""
        support, labels = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(labels)
        support = self._transform(support)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        self.means_ = np.stack([support[codes == c].mean(axis=0) for c in range(len(self.classes_))])
        return self

    def decision_function(self, X: npt.ArrayLike) -> Array:
        """Score every class, (n_queries, n_classes), or the second less the first where there are two."""
        check_is_fitted(self)
        scores = self._score(self._transform(validate_data(self, X, reset=False, dtype=[np.float64, np.float32])))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: npt.ArrayLike) -> Array:
        """Give each query the class of the largest score."""
        scores = self.decision_function(X)
        best = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
        labels: Array = self.classes_[best.astype(np.intp)]
        return labels

    def _transform(self, X: Array) -> Array:
        normalised: Array = l2_normalize(X)
        return normalised

    def _score(self, X: Array) -> Array:
        # -|x - m|² without |x|², which is the same for every class
        scores: Array = 2 * X @ self.means_.T - np.vecdot(self.means_, self.means_)
        return scores


class NN(L2N):
    """Largest inner product with the class mean of plain features: the paper's naive nearest neighbour."""

    def _transform(self, X: Array) -> Array:
        return X

    def _score(self, X: Array) -> Array:
        scores: Array = X @ self.means_.T
        return scores


class CL2N(L2N):
    """L2N after the mean of all base features is taken away.

    Parameters
    ----------
    priors : Priors
        Of which only the mean is used.
    """

    def __init__(self, priors: Priors) -> None:
        self.priors = priors

    def _transform(self, X: Array) -> Array:
        check_same_width(X, "the features", self.priors.prototypes, "the priors")
        return super()._transform(X - self.priors.mean.astype(X.dtype))
