"""What transductive methods share: they label all queries of a task together, so the task is learned with them."""

import numpy as np

from p3dc._arrays import Array, Labels
from p3dc.adaptive.space import members
from p3dc.baselines.contract import TaskMethod, centred
from p3dc.method import l2_normalize, masked_softmax
from p3dc.priors.prototypes import Priors


class TransductiveMethod(TaskMethod):
    """Few-shot classifier whose score of a query depends on the other queries that come with it.

    The state is the transformed support, (T, S, D), and the membership of its samples, (T, S, N).
    """

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Transform the support; the rest waits for the queries."""
        own = members(labels).astype(support.dtype)
        return self._transform(support), np.broadcast_to(own, (len(support), *own.shape))

    def _transform(self, features: Array) -> Array:
        return np.asarray(l2_normalize(features))


class CentredMethod(TransductiveMethod):
    """Transductive method on normalised features, from which the mean of all base features is first subtracted.

    Parameters
    ----------
    priors : Priors, optional
        Only their mean is used. Without them nothing is subtracted.
    """

    def __init__(self, priors: Priors | None = None) -> None:
        self.priors = priors

    def _transform(self, features: Array) -> Array:
        return super()._transform(features if self.priors is None else centred(features, self.priors))


def means_of(samples: Array, weights: Array) -> Array:
    """Average the samples with the weights of each class, (T, S, D), (T, S, N) -> (T, N, D)."""
    return np.asarray(weights.mT @ samples / weights.sum(axis=1)[..., None])


def rectify(support: Array, own: Array, queries: Array, scale: float) -> Array:
    """Estimate each class again from all samples nearest to it, with the queries shifted onto the support.

    Parameters
    ----------
    support : array of shape (T, S, D)
    own : array of shape (T, S, N)
        The membership of the support.
    queries : array of shape (T, Q, D)
    scale : float
        Multiplies the cosines whose softmax weighs the samples.

    Returns
    -------
    array of shape (T, N, D)
        The mean of the weighted samples. The weights do not sum to 1, so prototypes of uncertain samples are short.
    """
    shifted = queries + (support.mean(axis=1, keepdims=True) - queries.mean(axis=1, keepdims=True))
    samples, first = np.concatenate([support, shifted], axis=1), means_of(support, own)
    cosines = l2_normalize(samples) @ l2_normalize(first).mT
    nearest = np.equal(cosines.argmax(axis=-1)[..., None], np.arange(own.shape[-1]))
    counts = nearest.sum(axis=1)[..., None]
    sums = np.where(nearest, masked_softmax(scale * cosines, None), 0).mT @ samples
    return np.where(counts == 0, first, sums / np.maximum(counts, 1).astype(sums.dtype))
