"""Many tasks and many (α, β) at once.

α and β enter where the three corners of a sample's triangle are mixed, and nowhere before. So every score at every
(α, β) follows from the products of the queries with the corners x̄, s̄ and t̄ and from the corners' products with each
other. A whole grid costs little more than one point, and none of it touches the features again.

The arrays are float32 and cut to the size of the processor's cache. Where that leaves two classes too close to call,
the query is scored again in float64 by :mod:`p3dc.method`, so that the predictions are those of float64.

Shape letters: T tasks, N ways, K shots, S = N·K support, Q queries of a task, V corners, G points, B base classes,
D features.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from p3dc import method
from p3dc.checks import check_directions, check_power, check_same_width, check_settings
from p3dc.tasks import Rows, Tasks

Floats = npt.NDArray[np.floating]

CACHE_BYTES = 2**19  # the innermost arrays: half of a common second-level cache
CHUNK_BYTES = 2**23  # the features of one chunk of tasks
TABLE_BYTES = 2**28  # similarities of rows to priors
TOO_CLOSE = 4e-6  # ten times the largest error of a float32 cosine seen at attention logits up to 25


class TaskScorer:
    """Scores tasks drawn from one set of features, at one or many (α, β).

    Parameters
    ----------
    features : array of shape (n_rows, D)
    priors : array of shape (B, D), optional
        Base prototypes. Without them nothing is calibrated.
    alpha, beta : arrays of shape (G,)
    n_nearest, power, scale, attention
        As in :mod:`p3dc.method`.
    """

    def __init__(
        self,
        features: Floats,
        priors: Floats | None,
        alpha: npt.ArrayLike,
        beta: npt.ArrayLike,
        *,
        n_nearest: int = 5,
        power: float = 0.5,
        scale: float = 1.0,
        attention: method.Attention = "raw",
    ) -> None:
        check_settings(n_nearest=n_nearest, power=power, scale=scale, attention=attention)
        check_directions(features, "features")
        self.features = features
        self.features32 = np.ascontiguousarray(features, dtype=np.float32)
        self.alpha, self.beta = np.asarray(alpha, dtype=np.float64), np.asarray(beta, dtype=np.float64)
        self.mix = np.stack([1 - self.alpha - self.beta, self.alpha, self.beta]).astype(np.float32)
        self.n_nearest, self.power, self.scale, self.attention = n_nearest, power, scale, attention
        self.table = None
        if priors is not None:
            check_same_width(features, "the features", priors, "the priors")
            check_power(features, power, "features")
            self.table = PriorTable(features, priors, n_nearest, power)

    def correct(self, tasks: Tasks) -> npt.NDArray[np.int64]:
        """Count the queries that each task gets right at each point, (T, G)."""
        n_way, n_query = tasks.queries.shape[1:]
        counts = np.empty((len(tasks), len(self.alpha)), dtype=np.int64)
        for part, scores, error in self._chunks(tasks):
            by_own = scores.reshape(len(scores), n_way, n_way, n_query, -1)
            right = np.empty(by_own.shape[1:2] + by_own.shape[:1] + by_own.shape[3:], dtype=bool)
            for own in range(n_way):
                others = [by_own[:, n, own] for n in range(n_way) if n != own]
                margin = by_own[:, own, own] - np.maximum.reduce(others)
                np.greater(margin, 0, out=right[own])
                close = np.nonzero(np.abs(margin) < error)
                if len(close[0]):
                    right[own][close] = self._predict_exactly(tasks[part], own, *close) == own
            counts[part] = right.sum(axis=(0, 2))
        return counts

    def scores(self, tasks: Tasks) -> Floats:
        """Cosine of every query to every class at every point, (T, G, Q, N)."""
        return np.concatenate([scores.transpose(0, 3, 2, 1) for _, scores, _ in self._chunks(tasks)])

    def _chunks(self, tasks: Tasks) -> Iterator[tuple[slice, Floats, float]]:
        """Yield parts of the tasks, their scores, (T, N, Q, G), and a bound of the scores' error."""
        n_support, n_queries = (rows[0].size for rows in (tasks.support, tasks.queries))
        size = max(1, CHUNK_BYTES // (4 * self.features.shape[1] * (n_queries + 4 * n_support)))
        with threadpool_limits(1, user_api="blas"):
            for start in range(0, len(tasks), size):
                part = slice(start, min(start + size, len(tasks)))
                yield part, *self._score(tasks[part])

    def _score(self, tasks: Tasks) -> tuple[Floats, float]:
        n_tasks, n_way, n_shot = tasks.support.shape
        corners, mix = self._corners(tasks.support.reshape(n_tasks, -1))
        n_corners, width = corners.shape[2:]
        queries = self.features32[tasks.queries.reshape(n_tasks, -1)]
        norms = np.sqrt(np.vecdot(queries, queries))
        products = queries @ corners.reshape(n_tasks, -1, width).mT
        products = products.reshape(n_tasks, -1, n_way, n_shot, n_corners)
        by_class = corners.reshape(n_tasks, n_way, -1, width)
        grams = (by_class @ by_class.mT).reshape(n_tasks, n_way, n_shot, n_corners, n_shot, n_corners)
        error = TOO_CLOSE * float(np.abs(mix).sum(axis=0).max())
        if self.attention == "raw":
            scores = mix_and_attend(products, grams, mix, uniform=False)
            return scores / norms[:, None, :, None], error * max(1.0, float(norms.max()) / 50)
        products /= norms[:, :, None, None, None]
        return mix_and_attend(products, grams, mix, uniform=self.attention == "mean"), error

    def _corners(self, rows: Rows) -> tuple[Floats, Floats]:
        """Return the corners of each support row's triangle, (T, S, V, D), and the weights that mix them, (V, G)."""
        support = self.features32[rows]
        normalised = method.l2_normalize(support)
        alone = np.ones((1, len(self.alpha)), dtype=np.float32)
        if self.table is None:
            return normalised[:, :, None], alone
        similarities, nearest = self.table.take(rows)
        used = np.flatnonzero(nearest.any(axis=(0, 1)))
        similarities, nearest, priors = similarities[..., used], nearest[..., used], self.table.priors32[used]
        transformed = method.tukey(support, self.power)
        sample_ends = method.pull(transformed, priors, method.prior_weights(similarities, nearest, self.scale))
        task_ends = method.task_endpoints(transformed, priors, similarities, nearest, self.scale)
        if len(self.alpha) == 1:
            point = float(self.alpha[0]), float(self.beta[0])
            return method.unify(normalised, sample_ends, task_ends, *point)[:, :, None], alone
        ends = method.l2_normalize(sample_ends), method.l2_normalize(task_ends)
        return np.stack([normalised, *ends], axis=2), self.mix

    def _predict_exactly(self, tasks: Tasks, own: int, task: Rows, query: Rows, point: Rows) -> Rows:
        """Predict single queries of class ``own`` in float64."""
        _, n_way, n_shot = tasks.support.shape
        width = self.features.shape[1]
        priors = None if self.table is None else self.table.priors
        row_bytes = 8 * (width + (0 if priors is None else len(priors)))
        size = max(1, CHUNK_BYTES // (row_bytes * n_way * n_shot))
        predictions = []
        for start in range(0, len(task), size):
            t, q, g = (which[start : start + size] for which in (task, query, point))
            support = self.features[tasks.support[t].reshape(len(t), -1)].astype(np.float64)
            queries = self.features[tasks.queries[t, own, q]][:, None].astype(np.float64)
            if priors is None:
                calibrated = method.l2_normalize(support)
            else:
                calibrated = method.calibrate(
                    support,
                    priors,
                    alpha=self.alpha[g][:, None, None],
                    beta=self.beta[g][:, None, None],
                    n_nearest=self.n_nearest,
                    power=self.power,
                    scale=self.scale,
                )
            by_class = calibrated.reshape(len(t), n_way, n_shot, width)
            predictions.append(method.classify(queries, by_class, attention=self.attention)[:, 0].argmax(axis=-1))
        return np.concatenate(predictions)


def mix_and_attend(products: Floats, grams: Floats, mix: Floats, *, uniform: bool) -> Floats:
    """Unify the corners, attend and score, from inner products alone.

    Parameters
    ----------
    products : array of shape (T, Q, N, K, V)
        Queries with corners.
    grams : array of shape (T, N, K, V, K, V)
        Corners of one class with each other.
    mix : array of shape (V, G)
        The weights of the corners at each point.
    uniform : bool
        Whether all samples of a class weigh the same.

    Returns
    -------
    array of shape (T, N, Q, G)
        The products of the queries with their normalised prototypes.
    """
    n_tasks, n_queries, n_way, n_shot, n_corners = products.shape
    n_points = mix.shape[1]
    scores = np.empty((n_tasks, n_way, n_queries, n_points), dtype=products.dtype)
    products = products.transpose(0, 2, 3, 1, 4)
    grams = grams.transpose(0, 1, 2, 4, 3, 5).reshape(n_tasks, n_way, n_shot, n_shot, n_corners**2)
    point_bytes = 4 * n_way * n_shot * n_queries
    points = max(1, min(n_points, CACHE_BYTES // point_bytes))
    tasks = max(1, CACHE_BYTES // (point_bytes * points))
    for g in range(0, n_points, points):
        weights = mix[:, g : g + points]
        pairs = (weights[:, None] * weights).reshape(n_corners**2, -1)
        for t in range(0, n_tasks, tasks):
            kernel = grams[t : t + tasks] @ pairs
            lengths = np.sqrt(np.diagonal(kernel, axis1=2, axis2=3).mT)
            kernel /= lengths[:, :, :, None] * lengths[:, :, None]
            logits = products[t : t + tasks] @ (weights / lengths[..., None, :])
            scores[t : t + tasks, ..., g : g + points] = _attend(logits, kernel, uniform=uniform)
    return scores


def _attend(logits: Floats, kernel: Floats, *, uniform: bool) -> Floats:
    """Products of queries with normalised prototypes, (T, N, Q, G).

    ``logits`` are products of queries with calibrated samples, (T, N, K, Q, G), and ``kernel`` those of the samples of
    a class with each other, (T, N, K, K, G). The attention weights need not sum to one, since both the length of a
    prototype and its product with the query grow with their sum.
    """
    n_shot = logits.shape[2]
    if n_shot == 1:
        return logits[:, :, 0]
    if uniform:
        return np.asarray(logits.sum(axis=2) / np.sqrt(kernel.sum(axis=(2, 3)))[:, :, None])
    weights = np.exp(logits - logits.max(axis=2, keepdims=True))
    logits *= weights
    squared = np.zeros_like(logits[:, :, 0])
    for k in range(n_shot):
        row = weights[:, :, k].copy()
        for other in range(k):
            row += (2 * kernel[:, :, k, other])[:, :, None] * weights[:, :, other]
        row *= weights[:, :, k]
        squared += row
    return np.asarray(logits.sum(axis=2) / np.sqrt(squared))


class PriorTable:
    """Similarities of rows to all priors, computed once for each row while there is room.

    They are computed in float64 and kept as float32 less the largest of the row, which no softmax notices: so the
    nearest priors are exact, and the large weights are precise whatever the norm of the features.
    """

    def __init__(self, features: Floats, priors: Floats, n_nearest: int, power: float) -> None:
        self.features = features
        self.priors = priors.astype(np.float64)
        self.priors32 = priors.astype(np.float32)
        self.n_nearest, self.power = n_nearest, power
        self.place: Rows
        self.similarities: Floats
        self.nearest: npt.NDArray[np.bool_]
        self.filled: int
        self._make_room(min(len(features), TABLE_BYTES // (5 * len(priors))))

    def take(self, rows: Rows) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Similarities and masks of the nearest priors of any rows, both (..., B)."""
        missing = np.unique(rows[self.place[rows] < 0])
        if self.filled + len(missing) > len(self.similarities):
            missing = np.unique(rows)
            self._make_room(max(len(self.similarities), len(missing)))
        size = max(1, CHUNK_BYTES // (8 * sum(self.priors.shape)))
        for start in range(0, len(missing), size):
            some = missing[start : start + size]
            transformed = method.tukey(self.features[some].astype(np.float64), self.power)
            similarities = method.prior_similarities(transformed, self.priors)
            to = slice(self.filled, self.filled + len(some))
            self.nearest[to] = method.nearest_priors(similarities, self.n_nearest)
            self.similarities[to] = similarities - similarities.max(axis=-1, keepdims=True)
            self.place[some] = np.arange(to.start, to.stop)
            self.filled = to.stop
        places = self.place[rows]
        return self.similarities[places], self.nearest[places]

    def _make_room(self, n_rows: int) -> None:
        self.place = np.full(len(self.features), -1)
        self.similarities = np.empty((n_rows, len(self.priors)), dtype=np.float32)
        self.nearest = np.empty((n_rows, len(self.priors)), dtype=bool)
        self.filled = 0
