"""Nearest class mean on plain, normalised and centred features.

They differ in the transform of the features and in what "nearest" is. The paper's rows L2N + NN and CL2N + NN rank by
cosine, as its own classifier does; SimpleShot ranks by Euclidean distance. With one shot the two agree.
"""

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


class NN(ClassifierMixin, BaseEstimator):
    """Largest inner product with the class mean of plain features: the paper's naive nearest neighbour.

    Examples
    --------
    >>> from p3dc.baselines import NN
    >>> NN().fit([[1.0, 0.0], [0.0, 1.0]], ["wren", "robin"]).predict([[1.0, 3.0]])
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
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: npt.ArrayLike) -> Array:
        """Give each query the class of the largest score."""
        best = self._scores(X).argmax(axis=1)
        labels: Array = self.classes_[best]
        return labels

    def _scores(self, X: npt.ArrayLike) -> Array:
        check_is_fitted(self)
        return self._compare(self._transform(validate_data(self, X, reset=False, dtype=[np.float64, np.float32])))

    def _transform(self, X: Array) -> Array:
        return X

    def _compare(self, queries: Array) -> Array:
        scores: Array = queries @ self.means_.T
        return scores


class L2N(NN):
    """Largest cosine to the class mean of normalised features."""

    def _transform(self, X: Array) -> Array:
        normalised: Array = l2_normalize(X)
        return normalised

    def _compare(self, queries: Array) -> Array:
        cosines: Array = queries @ l2_normalize(self.means_).T
        return cosines


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


class SimpleShot(CL2N):
    """CL2N by Euclidean distance to the class mean, as published."""

    def _compare(self, queries: Array) -> Array:
        # -|q - m|² less |q|², which is the same for every class
        scores: Array = 2 * queries @ self.means_.T - np.vecdot(self.means_, self.means_)
        return scores
