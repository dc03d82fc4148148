"""N-way K-shot tasks as row indices.

Shape letters: T tasks, N ways, K shots, Q queries of each class, C classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Rows
from p3dc._validation import as_labels, check_count
from p3dc.errors import InputError

BLOCK = 1000
"""How many tasks are drawn together: few enough for the cache, many enough for NumPy."""


@dataclass(frozen=True)
class Tasks:
    """Few-shot tasks over one set of rows.

    Attributes
    ----------
    classes : array of shape (T, N)
        The classes of each task, as positions in the sorted unique labels.
    support : array of shape (T, N, K)
        The labelled rows of each class.
    queries : array of shape (T, N, Q)
        The rows to classify, by the class that they belong to.
    """

    classes: Rows
    support: Rows
    queries: Rows

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, part: slice) -> "Tasks":
        return Tasks(self.classes[part], self.support[part], self.queries[part])


def sample_tasks(
    labels: npt.ArrayLike,
    *,
    n_way: int = 5,
    n_shot: int = 1,
    n_query: int = 15,
    n_tasks: int = 2000,
    seed: int = 0,
    class_names: Sequence[str] | None = None,
) -> Tasks:
    """Draw few-shot tasks: classes at random, then distinct rows of each class.

    Task i depends only on the seed and on i: the first ten tasks are the same whether ten or ten thousand are drawn.

    Parameters
    ----------
    labels : array of shape (n_rows,)
        The class of each row.
    n_way, n_shot, n_query : int
        Classes in a task, support rows of each class, query rows of each class.
    n_tasks : int
        How many tasks to draw.
    seed : int
        Seed of the random numbers.
    class_names : sequence of str, optional
        Names for error sentences, if labels are positions in them.

    Returns
    -------
    Tasks

    Examples
    --------
    >>> from p3dc import sample_tasks
    >>> labels = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    >>> tasks = sample_tasks(labels, n_way=2, n_shot=1, n_query=2, n_tasks=3, seed=0)
    >>> tasks.support.shape, tasks.queries.shape
    ((3, 2, 1), (3, 2, 2))
    >>> more = sample_tasks(labels, n_way=2, n_shot=1, n_query=2, n_tasks=100, seed=0)
    >>> bool((more.queries[:3] == tasks.queries).all())
    True
    """
    sampler = TaskSampler(labels, n_way=n_way, n_shot=n_shot, n_query=n_query, seed=seed, class_names=class_names)
    return sampler.draw(n_tasks)


class TaskSampler:
    """The endless sequence of tasks that :func:`sample_tasks` draws the beginning of; any part of it can be drawn."""

    def __init__(
        self,
        labels: npt.ArrayLike,
        *,
        n_way: int,
        n_shot: int,
        n_query: int,
        seed: int,
        class_names: Sequence[str] | None = None,
    ) -> None:
        for name, number, least in (
            ("n_way", n_way, 2),
            ("n_shot", n_shot, 1),
            ("n_query", n_query, 1),
            ("seed", seed, 0),
        ):
            check_count(name, number, least)
        values, codes, self.counts = np.unique(as_labels(labels), return_inverse=True, return_counts=True)
        names = [str(value) if class_names is None else class_names[value] for value in values]
        self.n_way, self.n_shot, self.n_rows, self.seed = n_way, n_shot, n_shot + n_query, seed
        if len(values) < n_way:
            raise InputError(f"{n_way} ways need {n_way} classes, but there are {len(values)}. Lower n_way.")
        small = [f"{name} ({count})" for name, count in zip(names, self.counts, strict=True) if count < self.n_rows]
        if small:
            listed = ", ".join(small[:10]) + (f" and {len(small) - 10} more" if len(small) > 10 else "")
            raise InputError(
                f"{n_shot} shots and {n_query} queries need {self.n_rows} rows of each class, but these have fewer: "
                f"{listed}. Lower n_shot or n_query, or leave these classes out."
            )
        self.by_class = np.argsort(codes, kind="stable")
        self.first = np.cumsum(self.counts) - self.counts

    def draw(self, n_tasks: int, start: int = 0) -> Tasks:
        """Draw ``n_tasks`` tasks, the first of them number ``start``."""
        check_count("n_tasks", n_tasks, 1)
        blocks = [self._draw(min(BLOCK, n_tasks - done), start + done) for done in range(0, n_tasks, BLOCK)]
        classes, rows = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        return Tasks(classes, rows[..., : self.n_shot], rows[..., self.n_shot :])

    def _draw(self, n_tasks: int, start: int) -> tuple[Rows, Rows]:
        """Draw the classes, (T, N), and the rows, (T, N, K + Q), of a few tasks."""
        draws_per_task = self.n_way * (1 + self.n_rows)
        generator = np.random.PCG64(self.seed)
        generator.advance(start * draws_per_task)
        uniform = np.random.Generator(generator).random((n_tasks, draws_per_task))
        classes = _distinct(uniform[:, : self.n_way], np.full(n_tasks, len(self.counts)))
        members = _distinct(uniform[:, self.n_way :].reshape(n_tasks, self.n_way, -1), self.counts[classes])
        return classes, self.by_class[self.first[classes][..., None] + members]

    def unknown_queries(self, tasks: Tasks, n_unknown: int, start: int = 0) -> Rows:
        """Draw queries of unknown classes (out-of-distribution) for the tasks from number ``start`` on."""
        check_count("n_unknown", n_unknown, 1)
        n_classes = len(self.counts)
        if n_classes == self.n_way:
            raise InputError(f"all {n_classes} classes are in each task, so there are no others. Lower n_way.")
        generator = np.random.PCG64([self.seed, 1])
        generator.advance(start * 2 * n_unknown)
        uniform = np.random.Generator(generator).random((len(tasks), 2, n_unknown))
        classes = (uniform[:, 0] * (n_classes - self.n_way)).astype(np.int64)
        for taken in np.sort(tasks.classes, axis=1).T:
            classes += classes >= taken[:, None]
        return np.asarray(self.by_class[self.first[classes] + (uniform[:, 1] * self.counts[classes]).astype(np.int64)])

    def batches(self, n_tasks: int, size: int = 100) -> Iterator[Tasks]:
        """Draw the first tasks in batches, so that memory does not grow with their number."""
        check_count("n_tasks", n_tasks, 1)
        for start in range(0, n_tasks, size):
            yield self.draw(min(size, n_tasks - start), start)


def _distinct(uniform: npt.NDArray[np.float64], bounds: Rows) -> Rows:
    """Turn uniform numbers, (..., k), into k distinct integers below each bound, (...), with all orders equally likely.

    Number j picks the position of an integer among those that are still free. The integer is that position plus the
    number of integers already chosen below it. ``gaps`` counts, for each chosen integer, the free ones below it.
    """
    n_chosen = uniform.shape[-1]
    places = np.moveaxis(uniform * (bounds[..., None] - np.arange(n_chosen)), -1, 0).astype(np.int32, order="C")
    chosen, gaps = places.copy(), places.copy()
    for j in range(1, n_chosen):
        below = gaps[:j] <= places[j]
        chosen[j] += below.sum(axis=0)
        gaps[:j] -= ~below
    return np.moveaxis(chosen, 0, -1).astype(np.int64)
