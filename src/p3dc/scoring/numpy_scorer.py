"""Many tasks and many (α, β) at once.

α and β enter where the three corners of a sample's triangle are mixed, and nowhere before. So every score at every
(α, β) follows from the products of the queries with the corners x̄, s̄ and t̄ and from the corners' products with each
other. A whole grid costs little more than one point, and none of it touches the features again.

The arrays are cut to the size of the processor's cache. They are float32 where that is precise enough, else float64.
Where two classes are too close to call, the query is scored again by :mod:`p3dc.method` in float64, so that the
predictions are those of float64.

Shape letters: T tasks, N ways, K shots, S = N·K support, Q queries of a task, V corners, G points, B base classes,
D features.
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from p3dc import method
from p3dc._arrays import Rows, row_blocks
from p3dc._validation import check_directions, check_power, check_same_width, check_settings
from p3dc.errors import InputError
from p3dc.scoring.nearest_priors import PriorTable, priors_in_use, products
from p3dc.tasks import Tasks

Floats = npt.NDArray[np.floating]
Watch = Callable[[slice, Floats], None]

CACHE_BYTES = 2**19  # the innermost arrays: half of a common second-level cache
CHUNK_BYTES = 2**23  # the features of one chunk of tasks
FLOAT32: np.dtype[np.floating] = np.dtype(np.float32)
FLOAT64: np.dtype[np.floating] = np.dtype(np.float64)
LONGEST = 64  # a query that float32 can attend with: its logits err by its length times 1e-7
WIDEST = 4  # weights of the corners, added up without signs, that float32 can mix
TOO_CLOSE = {FLOAT32: 4e-6, FLOAT64: 1e-12}  # at least ten times the error of a cosine


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

    table: PriorTable | None = None
    reading = 0
    """Bytes of priors that are read for each chunk of tasks."""

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
        self.alpha, self.beta = np.asarray(alpha, dtype=np.float64), np.asarray(beta, dtype=np.float64)
        mix = np.stack([1 - self.alpha - self.beta, self.alpha, self.beta])
        short, long = _lengths(features)
        _check_lengths(short, long)
        reach = long if attention == "raw" else 1.0
        wide = float(np.abs(mix).sum(axis=0).max())
        self.dtype = FLOAT32 if reach <= LONGEST and wide <= WIDEST and short > 1e-15 and long < 1e15 else FLOAT64
        self.rows = np.ascontiguousarray(features, dtype=self.dtype)
        self.mix = mix.astype(self.dtype)
        self.too_close = TOO_CLOSE[self.dtype] * wide * max(1.0, reach / 50)
        self.n_nearest, self.power, self.scale, self.attention = n_nearest, power, scale, attention
        if priors is not None:
            check_same_width(features, "the features", priors, "the priors")
            check_power(features, power, "features")
            self.table = PriorTable(features, priors, n_nearest, power, self.dtype)

    def correct(self, tasks: Tasks, watch: Watch | None = None) -> npt.NDArray[np.int64]:
        """Count the queries that each task gets right at each point, (T, G).

        ``watch`` is shown the scores on the way, (T, N, Q, G) for each part of the tasks.
        """
        n_way, n_query = tasks.queries.shape[1:]
        counts = np.empty((len(tasks), len(self.alpha)), dtype=np.int64)
        for part, scores, too_close in self._chunks(tasks):
            if watch:
                watch(part, scores)
            by_own = scores.reshape(len(scores), n_way, n_way, n_query, -1)
            right = np.empty(by_own.shape[1:2] + by_own.shape[:1] + by_own.shape[3:], dtype=bool)
            for own in range(n_way):
                others = [by_own[:, n, own] for n in range(n_way) if n != own]
                margin = by_own[:, own, own] - np.maximum.reduce(others)
                np.greater(margin, 0, out=right[own])
                close = np.nonzero(~(np.abs(margin) >= too_close))  # also where it is NaN
                if len(close[0]):
                    right[own][close] = self._predict_exactly(tasks[part], own, *close) == own
            counts[part] = right.sum(axis=(0, 2))
        return counts

    def scores(self, tasks: Tasks) -> Floats:
        """Cosine of every query to every class at every point, (T, G, Q, N)."""
        return np.concatenate([scores.transpose(0, 3, 2, 1) for _, scores, _ in self._chunks(tasks)])

    def _chunks(self, tasks: Tasks) -> Iterator[tuple[slice, Floats, float]]:
        """Yield parts of the tasks, their scores, (T, N, Q, G), and the difference that does not tell scores apart."""
        n_support, n_queries = (rows[0].size for rows in (tasks.support, tasks.queries))
        n_scores = tasks.support.shape[1] * n_queries * len(self.alpha)
        numbers = self.features.shape[1] * (n_queries + 4 * n_support) + n_scores
        chunk_bytes = max(CHUNK_BYTES, self.reading // 8)  # enough tasks for the priors to be worth reading
        size = max(1, chunk_bytes // (self.dtype.itemsize * numbers))
        if self.table is not None:
            self.table.nearest(tasks.support)  # the one large product, on as many threads as the caller has
        with threadpool_limits(1 if chunk_bytes == CHUNK_BYTES else None, user_api="blas"):
            for start in range(0, len(tasks), size):
                part = slice(start, min(start + size, len(tasks)))
                yield part, *self._score(tasks[part])

    def _score(self, tasks: Tasks) -> tuple[Floats, float]:
        n_tasks, n_way, n_shot = tasks.support.shape
        corners, mix, queries = self._place(tasks)
        n_corners, width = corners.shape[2:]
        norms = np.sqrt(np.vecdot(queries, queries))
        norms[norms == 0] = 1  # a prepared query can lie in the centre
        products = queries @ corners.reshape(n_tasks, -1, width).mT
        products = products.reshape(n_tasks, -1, n_way, n_shot, n_corners)
        by_class = corners.reshape(n_tasks, n_way, -1, width)
        grams = (by_class @ by_class.mT).reshape(n_tasks, n_way, n_shot, n_corners, n_shot, n_corners)
        if self.attention != "raw":
            products /= norms[:, :, None, None, None]
        scores, shrinking = mix_and_attend(products, grams, mix, uniform=self.attention == "mean")
        if self.attention == "raw":
            scores /= norms[:, None, :, None]
        return scores, self.too_close * shrinking

    def _place(self, tasks: Tasks) -> tuple[Floats, Floats, Floats]:
        """Return corners, (T, S, V, D), the weights that mix them, (V, G), and queries, (T, Q, D)."""
        corners, mix = self._corners(tasks.support.reshape(len(tasks), -1))
        return corners, mix, self.rows[tasks.queries.reshape(len(tasks), -1)]

    def _corners(self, rows: Rows) -> tuple[Floats, Floats]:
        """Return the corners of each support row's triangle, (T, S, V, D), and the weights that mix them, (V, G)."""
        support = self.rows[rows]
        normalised = method.l2_normalize(support)
        alone = np.ones((1, len(self.alpha)), dtype=self.dtype)
        if self.table is None:
            return normalised[:, :, None], alone
        sample_ends, task_ends = self._ends(self.table, rows, support)
        if len(self.alpha) == 1:
            point = float(self.alpha[0]), float(self.beta[0])
            return method.mix(normalised, sample_ends, task_ends, *point)[:, :, None], alone
        ends = method.l2_normalize(sample_ends), method.l2_normalize(task_ends)
        return np.stack([normalised, *ends], axis=2), self.mix

    def _ends(self, table: PriorTable, rows: Rows, support: Floats) -> tuple[Floats, Floats]:
        """Find both endpoints of each support sample, (T, S, D), in the type of the support."""
        transformed = method.tukey(support, self.power)
        ends = np.empty_like(transformed), np.empty_like(transformed)
        for part, used, near, shared in priors_in_use(table.nearest(rows), len(table.priors)):
            similarities = table.similarities(rows[part], used, support.dtype)
            priors = table.priors[used].astype(support.dtype)
            for end, chosen in zip(ends, (near, shared), strict=True):
                weights = method.prior_weights(similarities, chosen, self.scale)
                end[part] = transformed[part] + products(weights, priors.T)
        return ends

    def _predict_exactly(self, tasks: Tasks, own: int, task: Rows, query: Rows, point: Rows) -> Rows:
        """Predict single queries of class ``own`` in float64."""
        _, n_way, n_shot = tasks.support.shape
        width = self.features.shape[1]
        size = max(1, CHUNK_BYTES // (8 * width * n_way * n_shot))
        predictions = []
        for start in range(0, len(task), size):
            t, q, g = (which[start : start + size] for which in (task, query, point))
            rows = tasks.support[t].reshape(len(t), -1)
            support = self.features[rows].astype(np.float64)
            queries = self.features[tasks.queries[t, own, q]][:, None].astype(np.float64)
            calibrated = method.l2_normalize(support)
            if self.table is not None:
                ends = self._ends(self.table, rows, support)
                alpha, beta = (weights[g][:, None, None] for weights in (self.alpha, self.beta))
                calibrated = method.unify(calibrated, *ends, alpha, beta)
            by_class = calibrated.reshape(len(t), n_way, n_shot, width)
            predictions.append(method.classify(queries, by_class, attention=self.attention)[:, 0].argmax(axis=-1))
        return np.concatenate(predictions)


def _lengths(features: Floats) -> tuple[float, float]:
    """Return the smallest and the largest length of a row."""
    with np.errstate(over="ignore"):
        norms = [np.linalg.norm(block.astype(np.float64), axis=1) for _, block in row_blocks(features)]
    return float(min(part.min() for part in norms)), float(max(part.max() for part in norms))


def _check_lengths(short: float, long: float) -> None:
    """Refuse features whose squares float64 cannot hold."""
    if short < 1e-150 or long > 1e150:
        raise InputError(f"features have lengths from {short:.3g} to {long:.3g}. Multiply them to come nearer to 1.")


def mix_and_attend(products: Floats, grams: Floats, mix: Floats, *, uniform: bool) -> tuple[Floats, float]:
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
    scores : array of shape (T, N, Q, G)
        The products of the queries with their normalised prototypes.
    shrinking : float
        How much the errors of the corners can grow where they nearly cancel each other.
    """
    n_tasks, n_queries, n_way, n_shot, n_corners = products.shape
    n_points = mix.shape[1]
    scores = np.empty((n_tasks, n_way, n_queries, n_points), dtype=products.dtype)
    products = products.transpose(0, 2, 3, 1, 4)
    grams = grams.transpose(0, 1, 2, 4, 3, 5).reshape(n_tasks, n_way, n_shot, n_shot, n_corners**2)
    point_bytes = products.itemsize * n_way * n_shot * n_queries
    total, shrinking = np.abs(mix).sum(axis=0), 1.0
    points = max(1, min(n_points, CACHE_BYTES // point_bytes))
    tasks = max(1, CACHE_BYTES // (point_bytes * points))
    for g in range(0, n_points, points):
        weights = mix[:, g : g + points]
        pairs = (weights[:, None] * weights).reshape(n_corners**2, -1)
        for t in range(0, n_tasks, tasks):
            kernel = grams[t : t + tasks] @ pairs
            lengths = np.sqrt(np.maximum(np.diagonal(kernel, axis1=2, axis2=3).mT, np.finfo(kernel.dtype).tiny))
            shrinking = max(shrinking, float((total[g : g + points] / lengths).max()) ** 2)
            kernel /= lengths[:, :, :, None] * lengths[:, :, None]
            logits = products[t : t + tasks] @ (weights / lengths[..., None, :])
            scores[t : t + tasks, ..., g : g + points] = _attend(logits, kernel, uniform=uniform)
    return scores, shrinking


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
    by_point, kernels = (np.ascontiguousarray(np.moveaxis(array, -1, 2)) for array in (weights, kernel))
    squared = np.moveaxis((kernels @ by_point * by_point).sum(axis=3), 2, -1)
    return np.asarray(logits.sum(axis=2) / np.sqrt(squared))
