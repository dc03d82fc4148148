"""Which priors are near which samples, where there may be very many priors.

No array has an axis of all priors unless it is small: the nearest are found a block of priors at a time, and what pulls
some tasks is computed from the priors that these tasks use.

Shape letters: T tasks, S support, M nearest, B base classes, U base classes in use, D features.
"""

from collections.abc import Callable, Iterator
from math import isqrt

import numpy as np
import numpy.typing as npt

from p3dc import method
from p3dc._arrays import Floats, Rows

Mask = npt.NDArray[np.bool_]
Part = tuple[slice, slice]
"""Some tasks, and some samples of each."""

BLOCK = 1024  # priors that are looked at together
GROUP_BYTES = 2**19  # similarities of tasks that share their priors: with more tasks most are of no use to most
WORK_BYTES = 2**23  # what is at work at one time
TABLE_BYTES = 2**28  # what is kept of all rows


def nearest_in_blocks(similarities: Callable[[slice], Floats], n_samples: int, n_base: int, n_nearest: int) -> Rows:
    """Choose the M most similar base classes of each sample as :func:`p3dc.method.nearest_priors` does.

    ``similarities`` gives those to some of the base classes, (..., b). Returns their numbers, ascending, (..., M).
    """
    best: Floats | None = None
    size = max(1, min(BLOCK, WORK_BYTES // (8 * n_samples)))
    for start in range(0, n_base, size):
        block = similarities(slice(start, start + size))
        numbers = np.arange(start, start + block.shape[-1])
        if best is None:
            best, found = block[..., :0], np.empty((*block.shape[:-1], 0), dtype=np.int64)
        elif best.shape[-1] == n_nearest:  # what is no better than the worst cannot be chosen: of equals the first are
            better = np.flatnonzero((block > best.min(axis=-1, keepdims=True)).any(axis=tuple(range(block.ndim - 1))))
            block, numbers = block[..., better], numbers[better]
        best = np.concatenate([best, block], axis=-1)
        found = np.concatenate([found, np.broadcast_to(numbers, block.shape)], axis=-1)
        chosen = method.nearest_priors(best, n_nearest)
        best, found = (array[chosen].reshape(*block.shape[:-1], -1) for array in (best, found))
    return found


def priors_in_use(nearest: Rows, n_base: int) -> Iterator[tuple[Part, Rows, Mask, Mask]]:
    """Take samples apart into parts that are small enough to be compared with all priors that they use.

    Parameters
    ----------
    nearest : array of shape (T, S, M)
    n_base : int

    Yields
    ------
    part : two slices
        Some tasks and some of their samples, (t, s).
    used : array of shape (U,)
        The priors that are near any sample of these tasks.
    near : mask of shape (t, s, U)
        Those near each sample.
    shared : mask of shape (t, 1, U)
        Those near any sample of each task.
    """
    n_tasks, n_support, n_nearest = nearest.shape
    numbers = GROUP_BYTES // (8 * n_support)
    size = max(1, numbers // n_base, isqrt(numbers // (n_support * n_nearest)))
    for start in range(0, n_tasks, size):
        tasks = slice(start, min(start + size, n_tasks))
        used = np.flatnonzero(np.bincount(nearest[tasks].ravel(), minlength=n_base))
        places = np.searchsorted(used, nearest[tasks])
        shared = _mask(places.reshape(len(places), 1, -1), len(used))
        step = max(1, WORK_BYTES // (8 * len(places) * len(used)))
        for first in range(0, n_support, step):
            samples = slice(first, first + step)
            yield (tasks, samples), used, _mask(places[:, samples], len(used)), shared


def _mask(places: Rows, size: int) -> Mask:
    mask = np.zeros((*places.shape[:-1], size), dtype=bool)
    np.put_along_axis(mask, places, True, axis=-1)
    return mask


class PriorTable:
    """The nearest priors of rows, found once for each row while there is room, and all similarities where they fit.

    They are computed in float64 and given in another type less the largest of the row, which no softmax notices: so the
    nearest priors are exact, and the large weights are precise whatever the norm of the features.
    """

    def __init__(
        self, features: Floats, priors: Floats, n_nearest: int, power: float, dtype: np.dtype[np.floating]
    ) -> None:
        self.features = features
        self.priors = np.asarray(priors, dtype=np.float64)
        self.n_nearest, self.power, self.dtype = min(n_nearest, len(priors)), power, dtype
        self.place: Rows
        self.found: Rows
        self.kept: Floats
        self.filled: int
        needed = 8 * self.n_nearest + dtype.itemsize * len(priors)
        self.keeps_all = len(features) * needed <= TABLE_BYTES
        self._make_room(min(len(features), TABLE_BYTES // (needed if self.keeps_all else 8 * self.n_nearest)))

    def nearest(self, rows: Rows) -> Rows:
        """Return the nearest priors of any rows, as ascending numbers, (..., M)."""
        missing = np.unique(rows[self.place[rows] < 0])
        if self.filled + len(missing) > len(self.found):
            missing = np.unique(rows)
            self._make_room(max(len(self.found), len(missing)))
        n_base, width = self.priors.shape
        size = max(1, WORK_BYTES // (8 * (width + (n_base if self.keeps_all else min(n_base, BLOCK)))))
        for start in range(0, len(missing), size):
            some = missing[start : start + size]
            to = slice(self.filled, self.filled + len(some))
            self.found[to] = nearest_in_blocks(self._compare(some, to), len(some), n_base, self.n_nearest)
            self.place[some] = np.arange(to.start, to.stop)
            self.filled = to.stop
        return self.found[self.place[rows]]

    def similarities(self, rows: Rows, used: Rows, dtype: np.dtype[np.floating]) -> Floats:
        """Similarities of rows, (..., S), to some priors that have the nearest among them, (..., S, U)."""
        if self.keeps_all and dtype == self.dtype:
            return self.kept[self.place[rows]][..., used]
        similarities = products(self._transformed(rows), self.priors[used])
        return np.asarray(similarities - similarities.max(axis=-1, keepdims=True), dtype=dtype)

    def _compare(self, rows: Rows, to: slice) -> Callable[[slice], Floats]:
        """Return a function from some priors to the similarities of rows; keep them where all are kept."""
        transformed = self._transformed(rows)
        if not self.keeps_all:
            return lambda block: products(transformed, self.priors[block])
        similarities = products(transformed, self.priors)
        self.kept[to] = similarities - similarities.max(axis=-1, keepdims=True)
        return lambda block: similarities[:, block]

    def _transformed(self, rows: Rows) -> Floats:
        return np.asarray(method.tukey(self.features[rows].astype(np.float64), self.power))

    def _make_room(self, n_rows: int) -> None:
        self.place = np.full(len(self.features), -1)
        self.found = np.empty((n_rows, self.n_nearest), dtype=np.int64)
        self.kept = np.empty((n_rows, len(self.priors) if self.keeps_all else 0), dtype=self.dtype)
        self.filled = 0


def products(samples: Floats, priors: Floats) -> Floats:
    """Inner products as one product of two matrices, (..., D), (U, D) -> (..., U)."""
    flat: Floats = method.prior_similarities(samples.reshape(-1, samples.shape[-1]), priors)
    return flat.reshape(*samples.shape[:-1], -1)
