"""PT-MAP: power transform, then class centres and a balanced assignment of the queries in turn."""

import numpy as np

from p3dc._arrays import Array
from p3dc._validation import check_power
from p3dc.baselines.contract import negative_distances
from p3dc.baselines.transductive import TransductiveMethod, means_of
from p3dc.method import l2_normalize, tukey

OFFSET = 1e-6  # added to features before the power
TOLERANCE = 1e-6  # of the row sums of an assignment
MOST_ROUNDS = 1000


class PTMAP(TransductiveMethod):
    """Class centres estimated with queries that Sinkhorn's algorithm assigns to all classes in equal number.

    Parameters
    ----------
    power : float, default=0.5
        Exponent of the transform; β in the publication. Any but 1 needs features that are not negative.
    scale : float, default=10.0
        Multiplies the squared distances in the assignment; λ in the publication.
    step : float, default=0.2
        How far centres move towards their new estimate in each epoch; α in the publication.
    n_epochs : int, default=20

    Examples
    --------
    >>> from p3dc.baselines import PTMAP
    >>> model = PTMAP().fit([[1.0, 0.0], [0.0, 1.0]], ["wren", "robin"])
    >>> model.predict([[1.0, 3.0], [2.0, 3.0], [9.0, 1.0], [7.0, 1.0]])
    array(['robin', 'robin', 'wren', 'wren'], dtype='<U5')
    """

    differs = "nothing; its QR decomposition, which changes no distance, is left out. It assumes equal classes"

    def __init__(self, *, power: float = 0.5, scale: float = 10.0, step: float = 0.2, n_epochs: int = 20) -> None:
        self.power = power
        self.scale = scale
        self.step = step
        self.n_epochs = n_epochs

    def score_tasks(self, state: tuple[Array, ...], queries: Array) -> Array:
        """Return the assignments of the queries to the last centres."""
        support, own = state
        queries = self._transform(queries)
        samples, centres = np.concatenate([support, queries], axis=1), means_of(support, own)
        for _ in range(self.n_epochs):
            assigned = np.concatenate([own, self._assign(queries, centres)], axis=1)
            centres = centres + self.step * (means_of(samples, assigned) - centres)
        return self._assign(queries, centres).astype(queries.dtype)

    def _transform(self, features: Array) -> Array:
        """Transform support or queries, each centred at their own mean."""
        check_power(features, self.power, "features")
        unit = l2_normalize(tukey(features + OFFSET, self.power))
        return super()._transform(unit - unit.mean(axis=1, keepdims=True))

    def _assign(self, queries: Array, centres: Array) -> Array:
        """Scale rows to 1 and columns to the same number in turn, (T, Q, D), (T, N, D) -> (T, Q, N)."""
        nearness = self.scale * negative_distances(queries, centres).astype(np.float64)
        plan = np.exp(nearness - nearness.max(axis=-1, keepdims=True))
        n_tasks, n_queries, n_ways = plan.shape
        rows, columns = np.ones((n_tasks, n_queries, 1)), np.ones((n_tasks, n_ways, 1))
        sums, active = plan @ columns, np.arange(n_tasks)
        kernel, before = plan, sums
        for _ in range(MOST_ROUNDS):
            rows[active] = 1 / sums
            columns[active] = n_queries / n_ways / (kernel.mT @ rows[active])
            sums = kernel @ columns[active]
            now = rows[active] * sums
            moving = (np.abs(now - before) > TOLERANCE).any(axis=(1, 2))
            before = now
            if not moving.all():
                active, kernel, sums, before = active[moving], kernel[moving], sums[moving], now[moving]
            if not len(active):
                break
        return np.asarray(plan * rows * columns.mT)
