"""TCPR: a head on normalised features without the direction of the task's centroid."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Array, Labels, row_blocks
from p3dc._validation import check_power, check_same_width
from p3dc.adaptive.settings import Settings
from p3dc.baselines.contract import TaskMethod, task_generators
from p3dc.baselines.sgd_heads import train_heads
from p3dc.features import FeatureSet
from p3dc.method import l2_normalize, tukey

CHUNK_BYTES = 2**26  # the cosines of tasks that are compared with the base features together


class TCPR(TaskMethod):
    """Head on normalised features without the direction that is common to their task, which base features estimate.

    What is left of a feature is not normalised again, as in the publication's code: the more a sample points along
    the centroid, the less it counts. The published method extracts features with its own backbone; here they are fixed.

    Parameters
    ----------
    base : FeatureSet
        Single features of the base classes.
    power : float, default=0.7
        Exponent of Tukey's transform of support and queries. Any but 1 needs features that are not negative.
    n_nearest : int, default=15000
        How many base features estimate the centroid of a task; all where there are fewer.
    scale : float, default=5.0
        Multiplies the products of the features with the weights of the head, which have length 1.
    n_epochs : int, default=100
        How often every support sample is seen.
    random_state : int, default=0
        Seed of the first weights and of the order of the samples.

    Examples
    --------
    >>> from p3dc import FeatureSet
    >>> from p3dc.baselines.tcpr import TCPR
    >>> base = FeatureSet([[1.0, 1.0, 3.0], [1.0, 2.0, 2.0]], ["owl", "lynx"])
    >>> TCPR(base).fit([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], ["wren", "robin"]).predict([[0.0, 3.0, 3.0]])
    array(['robin'], dtype='<U5')
    """

    differs = "the features are not extracted by its own network"

    def __init__(
        self,
        base: FeatureSet,
        *,
        power: float = 0.7,
        n_nearest: int = 15000,
        scale: float = 5.0,
        n_epochs: int = 100,
        random_state: int = 0,
    ) -> None:
        self.base = base
        self.power = power
        self.n_nearest = n_nearest
        self.scale = scale
        self.n_epochs = n_epochs
        self.random_state = random_state

    def learn_tasks(self, support: Array, labels: Labels) -> tuple[Array, ...]:
        """Estimate the centroid of each task and train a head on its support without that direction."""
        Settings(n_nearest=self.n_nearest, power=self.power, scale=self.scale)
        check_same_width(support, "the support", self.base.features, "the base features")
        transformed = self._transform(support, "the support")
        centroids = self._centroids(transformed.mean(axis=1))
        heads = train_heads(
            remove(transformed, centroids).astype(np.float64),
            labels,
            task_generators(support, self.random_state),
            scale=self.scale,
            n_epochs=self.n_epochs,
            weight_norm=False,
        )
        return heads.astype(support.dtype), centroids

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Compute the logits of the head for the queries without that direction."""
        heads, centroids = state
        return np.asarray(remove(self._transform(queries, "the queries"), centroids) @ heads.mT)

    def _transform(self, features: Array, what: str) -> Array:
        check_power(features, self.power, what)
        return np.asarray(tukey(features, self.power))

    def _centroids(self, means: Array) -> Array:
        """Average the base features nearest to each mean, weighted by the roots of their cosines, (T, D) -> (T, D)."""
        n_base = len(self.base)
        n_far = max(0, n_base - self.n_nearest)
        size = max(1, CHUNK_BYTES // (means.itemsize * n_base))
        sums = np.zeros_like(means)
        for first in range(0, len(means), size):
            part = slice(first, first + size)
            directions = l2_normalize(means[part])
            cosines = np.empty((len(directions), n_base), dtype=means.dtype)
            for rows, unit in self._unit_base(means.dtype):
                cosines[:, rows] = directions @ unit.T
            if n_far:
                for row in cosines:
                    row[np.argpartition(row, n_far)[:n_far]] = 0
            weights = np.sqrt(np.maximum(cosines, 0))
            for rows, unit in self._unit_base(means.dtype):
                sums[part] += weights[:, rows] @ unit
        return np.asarray(l2_normalize(sums))

    def _unit_base(self, dtype: npt.DTypeLike) -> Iterator[tuple[slice, Array]]:
        """Normalise the base features a block at a time, so that they are never all in memory twice."""
        for start, block in row_blocks(self.base.features):
            yield slice(start, start + len(block)), l2_normalize(block.astype(dtype))


def remove(features: Array, centroids: Array) -> Array:
    """Normalise features and subtract their component along the centroid, (T, S, D), (T, D) -> (T, S, D)."""
    unit = l2_normalize(features)
    return np.asarray(unit - (unit @ centroids[..., None]) * centroids[:, None])
