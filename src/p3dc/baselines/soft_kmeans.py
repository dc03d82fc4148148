"""Soft k-means: prototypes refined with the queries that are assigned to them in part."""

import numpy as np

from p3dc._arrays import Array
from p3dc.baselines.contract import negative_distances
from p3dc.baselines.transductive import TransductiveMethod, means_of
from p3dc.method import masked_softmax


class SoftKMeans(TransductiveMethod):
    """Nearest prototype after soft k-means over support and queries, on L2-normalised features.

    Every query belongs to each class by the softmax of its negative squared distances, and support samples belong to
    their own class throughout.

    Parameters
    ----------
    scale : float, default=10.0
        Multiplies the squared distances. The publication learns the features, and with them their length.
    n_iter : int, default=1
        How often prototypes are refined.

    Examples
    --------
    >>> from p3dc.baselines import SoftKMeans
    >>> model = SoftKMeans().fit([[1.0, 0.0], [0.0, 1.0]], ["wren", "robin"])
    >>> model.predict([[1.0, 3.0], [2.0, 3.0], [9.0, 1.0]])
    array(['robin', 'robin', 'wren'], dtype='<U5')
    """

    differs = (
        "one refinement, with the queries as its unlabelled samples; squared distances of normalised features are "
        "multiplied by 10, since the features are not learned for it"
    )

    def __init__(self, *, scale: float = 10.0, n_iter: int = 1) -> None:
        self.scale = scale
        self.n_iter = n_iter

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Refine the prototypes and rank by distance to them."""
        support, own = state
        queries = self._transform(queries)
        samples, prototypes = np.concatenate([support, queries], axis=1), means_of(support, own)
        for _ in range(self.n_iter):
            assigned = masked_softmax(self.scale * negative_distances(queries, prototypes), None)
            prototypes = means_of(samples, np.concatenate([own, assigned], axis=1))
        return negative_distances(queries, prototypes)
