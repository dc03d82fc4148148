"""Scores of many tasks at many (α, β), by NumPy.

Arrays are cut to the size of the processor's cache. Where two classes are too close to call in float32, the query is
scored again in float64, so that the predictions are those of float64.

Shape letters are those of :mod:`p3dc.scoring.kernel`.
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from p3dc._arrays import Floats, Rows
from p3dc.scoring.kernel import mix_and_attend, score_corners
from p3dc.scoring.plain_corners import FLOAT64, TOO_CLOSE, PlainCorners
from p3dc.scoring.whitened_corners import WhitenedCorners
from p3dc.tasks import Tasks

CACHE_BYTES = 2**19  # the innermost arrays: half of a common second-level cache
CHUNK_BYTES = 2**23  # the features of one chunk of tasks


class NumpyScorer:
    """Scores tasks drawn from one set of features, at one or many (α, β).

    Parameters
    ----------
    source : PlainCorners or WhitenedCorners
        Where the corners of tasks come from.
    """

    def __init__(self, source: PlainCorners | WhitenedCorners) -> None:
        self.source = source
        self.plain = source if isinstance(source, PlainCorners) else None
        self.attention = source.settings.attention
        self.dtype = FLOAT64 if self.plain is None else self.plain.dtype
        self.too_close = TOO_CLOSE[FLOAT64] if self.plain is None else self.plain.too_close

    def correct(self, tasks: Tasks, watch: Callable[[slice, Floats], None] | None = None) -> npt.NDArray[np.int64]:
        """Count the queries that each task gets right at each point, (T, G).

        ``watch`` is called with the scores of each part of the tasks, (T, N, Q, G).
        """
        n_way, n_query = tasks.queries.shape[1:]
        counts = np.empty((len(tasks), self.source.n_points), dtype=np.int64)
        for part, scores, too_close in self._chunks(tasks):
            if watch:
                watch(part, scores)
            by_own = scores.reshape(len(scores), n_way, n_way, n_query, -1)
            right = np.empty(by_own.shape[1:2] + by_own.shape[:1] + by_own.shape[3:], dtype=bool)
            for own in range(n_way):
                others = [by_own[:, n, own] for n in range(n_way) if n != own]
                margin = by_own[:, own, own] - np.maximum.reduce(others)
                np.greater(margin, 0, out=right[own])
                task, query, point = close = np.nonzero(~(np.abs(margin) >= too_close))  # also where it is NaN
                if len(task):
                    level = by_own[task, :, own, query, point]
                    right[own][close] = self._decide(tasks[part], own, close, level, too_close) == own
            counts[part] = right.sum(axis=(0, 2))
        return counts

    def scores(self, tasks: Tasks) -> Floats:
        """Return the cosine of every query to every class at every point, (T, G, Q, N)."""
        return np.concatenate([scores.transpose(0, 3, 2, 1) for _, scores, _ in self._chunks(tasks)])

    def _chunks(self, tasks: Tasks) -> Iterator[tuple[slice, Floats, float]]:
        """Yield parts of the tasks, their scores, (T, N, Q, G), and the margin below which classes are too close."""
        source = self.source
        n_support, n_queries = (rows[0].size for rows in (tasks.support, tasks.queries))
        n_scores = tasks.support.shape[1] * n_queries * source.n_points
        numbers = source.width * (n_queries + 4 * n_support) + n_scores
        read_bytes = 0 if isinstance(source, PlainCorners) else 8 * source.n_base * source.width
        chunk_bytes = max(CHUNK_BYTES, read_bytes // 8)  # enough tasks for the priors to be worth reading
        size = max(1, chunk_bytes // (self.dtype.itemsize * numbers))
        if self.plain is not None and self.plain.table is not None:
            self.plain.table.nearest(tasks.support)  # the one large product, on as many threads as the caller has
        with threadpool_limits(1 if chunk_bytes == CHUNK_BYTES else None, user_api="blas"):
            for start in range(0, len(tasks), size):
                part = slice(start, min(start + size, len(tasks)))
                yield part, *self._score(tasks[part])

    def _score(self, tasks: Tasks) -> tuple[Floats, float]:
        corners = self.source.corners(tasks.support, tasks.queries.reshape(len(tasks), -1))
        scores, growth = score_corners(corners, self.attention, in_blocks)
        return scores, self.too_close * growth

    def _decide(self, tasks: Tasks, own: int, close: tuple[Rows, ...], level: Floats, too_close: float) -> Rows:
        """Predict queries of class ``own`` whose classes are too close: in float64, and of equal classes the first."""
        if self.plain is None:
            return np.asarray(np.argmax(level >= level.max(axis=1, keepdims=True) - too_close, axis=1))
        size = max(1, CHUNK_BYTES // (8 * self.source.width * tasks.support[0].size))
        predictions = []
        for start in range(0, len(close[0]), size):
            t, q, g = (which[start : start + size] for which in close)
            exact = self.plain.exact_scores(tasks.support[t], tasks.queries[t, own, q], g)
            predictions.append(exact.argmax(axis=-1))
        return np.concatenate(predictions)


def in_blocks(products: Floats, grams: Floats, mix: Floats, *, uniform: bool) -> tuple[Floats, float]:
    """Call :func:`mix_and_attend` on blocks that fit into the cache.

    Returns
    -------
    scores : array of shape (T, N, Q, G)
    growth : float
        How much the errors of the corners can grow where the corners nearly cancel each other.
    """
    n_tasks, n_queries, n_way, n_shot, _ = products.shape
    n_points = mix.shape[1]
    scores = np.empty((n_tasks, n_way, n_queries, n_points), dtype=products.dtype)
    point_bytes = products.itemsize * n_way * n_shot * n_queries
    total, growth = np.abs(mix).sum(axis=0), 1.0
    points = max(1, min(n_points, CACHE_BYTES // point_bytes))
    tasks = max(1, CACHE_BYTES // (point_bytes * points))
    for g in range(0, n_points, points):
        weights = mix[:, g : g + points]
        for t in range(0, n_tasks, tasks):
            some = slice(t, t + tasks)
            scores[some, ..., g : g + points], lengths = mix_and_attend(
                products[some], grams[some], weights, uniform=uniform
            )
            growth = max(growth, float((total[g : g + points] / lengths).max()) ** 2)
    return scores, growth
