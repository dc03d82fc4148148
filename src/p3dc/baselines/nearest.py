"""Nearest class mean on plain, normalised and centred features.

They differ in the transform of the features and in the meaning of "nearest". The paper's rows L2N + NN and CL2N + NN
rank by cosine, as its own classifier does; SimpleShot ranks by Euclidean distance. With one shot the two agree.
"""

import numpy as np

from p3dc._arrays import Array, Labels
from p3dc.baselines.contract import TaskMethod, centred, class_means, in_range, negative_distances
from p3dc.method import l2_normalize
from p3dc.priors.prototypes import Priors


class NN(TaskMethod):
    """Largest inner product with the class mean of plain features: the paper's naive nearest neighbour.

    Examples
    --------
    >>> from p3dc.baselines import NN
    >>> NN().fit([[1.0, 0.0], [0.0, 1.0]], ["wren", "robin"]).predict([[1.0, 3.0]])
    array(['robin'], dtype='<U5')
    """

    differs = "nothing: inner product with the class mean"

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Average each class."""
        return (class_means(support, labels),)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Compute inner products with the means."""
        queries, means = in_range(queries, state[0])
        return np.asarray(queries @ means.mT)


class L2N(TaskMethod):
    """Largest cosine to the class mean of normalised features."""

    differs = "nothing: cosine to the mean of normalised features"

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Average each class of transformed samples."""
        return (class_means(self._transform(support), labels),)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Compute cosines to the means."""
        return np.asarray(self._transform(queries) @ l2_normalize(state[0]).mT)

    def _transform(self, features: Array) -> Array:
        return np.asarray(l2_normalize(features))


class CL2N(L2N):
    """L2N after the mean of all base features is subtracted.

    Parameters
    ----------
    priors : Priors
        Only their mean is used.
    """

    differs = "nothing: the same after the mean of all base features is subtracted"

    def __init__(self, priors: Priors) -> None:
        self.priors = priors

    def _transform(self, features: Array) -> Array:
        return super()._transform(centred(features, self.priors))


class SimpleShot(CL2N):
    """CL2N by Euclidean distance to the class mean, as published."""

    differs = "CL2N by Euclidean distance; the network is not trained for it"

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Rank by distance to the means."""
        return negative_distances(self._transform(queries), state[0])
