"""The rules of ProtoNet and MatchingNet on given features."""

import numpy as np

from p3dc._arrays import Array, Labels
from p3dc.adaptive.space import members
from p3dc.baselines.contract import TaskMethod, in_range, negative_distances
from p3dc.baselines.nearest import NN
from p3dc.method import l2_normalize, masked_softmax


class ProtoNet(NN):
    """Smallest Euclidean distance to the class mean.

    The published network learns its features for this rule; here they are fixed.
    """

    differs = "its rule; the features are not learned for it"

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Rank by distance to the means."""
        return negative_distances(*in_range(queries, state[0]))


class MatchingNet(TaskMethod):
    """Softmax over all samples of 100 times their cosine to the query, summed for each class.

    The published network learns its features and reads the whole support with LSTMs; here features are fixed and there
    is no LSTM.
    """

    differs = "its rule; no LSTMs read the support, and the features are not learned for it"

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Keep the normalised samples and their classes."""
        own = members(labels).astype(support.dtype)
        return l2_normalize(support), np.broadcast_to(own, (len(support), *own.shape))

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Sum the attention of each class."""
        support, own = state
        return np.asarray(masked_softmax(100 * l2_normalize(queries) @ support.mT, None) @ own)
