"""MCL-Katz: how central the positions of each class are on a graph that joins them with the positions of a query.

A photo is seen as the features of all positions of its feature maps. Each position of a query links to the positions of
all classes, and each of these links back, in proportion to a softmax of their cosines. A class scores the share of its
positions in Katz centrality.

Shape letters: T tasks, S support, Q queries, N ways, P positions, D features of a position.
"""

import numpy as np

from p3dc._arrays import Array, Floats, Labels
from p3dc._validation import check_count
from p3dc.baselines.contract import TaskMethod, class_means
from p3dc.errors import InputError
from p3dc.features import FeatureSet
from p3dc.method import l2_normalize, masked_softmax


class MCLKatz(TaskMethod):
    """Largest share of Katz centrality among the positions of all classes.

    With A the links from query to classes and B those back, both with columns that sum to 1, the centrality c of the
    positions of classes solves c = a A (1 + q) and q = a B (1 + c), where q is that of the query's positions.

    Parameters
    ----------
    n_positions : int, default=1
        Positions of a feature map in each row, :attr:`FeatureSet.maps`.
    gamma : float, default=20.0
        Factor of the cosines in the links from a query to classes.
    gamma_back : float, default=10.0
        Factor of the cosines in the links from classes to a query.
    attenuation : float, default=0.5
        Weight a of a link, below 1.
    """

    differs = "its rule; the network is not trained for it. Its part PSM was never published"

    def __init__(
        self, n_positions: int = 1, *, gamma: float = 20.0, gamma_back: float = 10.0, attenuation: float = 0.5
    ) -> None:
        self.n_positions = n_positions
        self.gamma = gamma
        self.gamma_back = gamma_back
        self.attenuation = attenuation

    def rows_of(self, features: FeatureSet) -> Floats:
        """Return the feature maps, all positions in one row."""
        if features.maps is None or features.maps.shape[1] != self.n_positions:
            there = 0 if features.maps is None else features.maps.shape[1]
            raise InputError(
                f"feature maps have {there} positions, not {self.n_positions}. Extract all photos with --maps and the "
                "same backbone."
            )
        return features.maps.reshape(len(features), -1)

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Average the feature maps of each class, position by position, (T, N · P, D)."""
        check_count("n_positions", self.n_positions, 1)
        if not 0 < self.attenuation < 1:
            raise InputError(f"attenuation is {self.attenuation}. It must lie between 0 and 1.")
        if support.shape[-1] % self.n_positions:
            raise InputError(
                f"rows have {support.shape[-1]} numbers, which {self.n_positions} positions cannot share equally."
            )
        means = class_means(support, labels)
        return (l2_normalize(means.reshape(len(means), -1, support.shape[-1] // self.n_positions)),)

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Compute the share of each class, one task at a time."""
        (means,) = state
        seen = l2_normalize(queries.reshape(*queries.shape[:2], self.n_positions, -1))
        return np.stack([self._shares(each, own) for each, own in zip(seen, means, strict=True)])

    def _shares(self, queries: Array, means: Array) -> Array:
        """Compute the shares of all classes for all queries of a task, (Q, P, D), (N · P, D) -> (Q, N)."""
        cosines = queries @ means.T
        there = masked_softmax(self.gamma * cosines, None).mT
        back = masked_softmax(self.gamma_back * cosines.mT, None).mT
        identity = np.eye(self.n_positions, dtype=cosines.dtype)
        enters = 1 + self.attenuation * back.sum(axis=-1, keepdims=True)
        of_queries = np.linalg.solve(identity - self.attenuation**2 * (back @ there), enters)
        centrality = there @ of_queries
        shares = centrality.reshape(len(queries), -1, self.n_positions).sum(axis=-1)
        return np.asarray(shares / shares.sum(axis=-1, keepdims=True))
