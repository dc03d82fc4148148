"""N-way K-shot tasks as row indices.

Shape letters: T tasks, N ways, K shots, Q queries of each class, C classes, P photos of a pile.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Labels, Rows
from p3dc._validation import as_labels, check_count, is_number, listed
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


PileBalance = Literal["equal", "one"] | float
"""How the known photos of a pile spread over the classes: equally, by a Dirichlet concentration, or all in one."""


@dataclass(frozen=True)
class Piles:
    """Unlabelled photos, some for each task.

    Attributes
    ----------
    rows : array of shape (T, P)
        In random order; none is in the support or among the queries of its task.
    classes : array of shape (T, P)
        The class of each row within its task, from 0 to N - 1, or -1 for classes outside the task.
    """

    rows: Rows
    classes: Labels


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
    """An endless sequence of tasks, any part of which can be drawn; :func:`sample_tasks` draws its beginning."""

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
            raise InputError(
                f"{n_shot} shots and {n_query} queries need {self.n_rows} rows of each class, but these have fewer: "
                f"{listed(small)}. Lower n_shot or n_query, or leave these classes out."
            )
        self.by_class = np.argsort(codes, kind="stable")
        self.first = np.cumsum(self.counts) - self.counts
        self.place = np.argsort(self.by_class)

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
        self._check_others()
        generator = np.random.PCG64([self.seed, 1])
        generator.advance(start * 2 * n_unknown)
        uniform = np.random.Generator(generator).random((len(tasks), 2, n_unknown))
        classes = (uniform[:, 0] * (len(self.counts) - self.n_way)).astype(np.int64)
        for taken in np.sort(tasks.classes, axis=1).T:
            classes += classes >= taken[:, None]
        return np.asarray(self.by_class[self.first[classes] + (uniform[:, 1] * self.counts[classes]).astype(np.int64)])

    def piles(
        self,
        tasks: Tasks,
        n_pile: int,
        *,
        balance: PileBalance = "equal",
        unknown: float = 0.0,
        n_unknown_classes: int | None = None,
        start: int = 0,
        excluded: Rows | None = None,
    ) -> Piles:
        """Draw unlabelled photos for the tasks from number ``start`` on.

        The pile of a task depends only on its number, the seed and these options, and the task does not depend on its
        pile.

        Parameters
        ----------
        tasks : Tasks
            Drawn by this sampler.
        n_pile : int
            Photos in each pile, P.
        balance : {"equal", "one"} or float
            How known photos spread over the classes: equally, all in one class, or multinomially with shares from a
            Dirichlet distribution of this concentration. What a class does not have goes to the others.
        unknown : float
            Share of the pile that is of classes outside the task, drawn from all of their rows.
        n_unknown_classes : int, optional
            How many classes outside the task the pile may have photos of; all by default.
        start : int
            Number of the first task.
        excluded : array of shape (T, n_excluded), optional
            Rows of other classes that may not be in the pile of each task.
        """
        check_count("n_pile", n_pile, 1)
        if not (is_number(unknown) and 0 <= unknown <= 1):
            raise InputError(f"pile_unknown is {unknown!r}. It must be a share from 0 to 1.")
        n_unknown = round(n_pile * unknown)
        n_others = len(self.counts) - self.n_way
        if n_unknown_classes is not None:
            check_count("pile_unknown_classes", n_unknown_classes, 1)
            n_others = min(n_others, n_unknown_classes)
        excluded = np.empty((len(tasks), 0), dtype=np.int64) if excluded is None else excluded
        self._check_pile(n_pile - n_unknown, n_unknown, balance, n_others, excluded.shape[1])
        rows, classes = np.empty((2, len(tasks), n_pile), dtype=np.int64)
        for i in range(len(tasks)):
            random = np.random.default_rng([self.seed, 2, start + i])
            counts = self._pile_counts(random, tasks.classes[i], n_pile - n_unknown, balance)
            used = zip(tasks.classes[i], counts, tasks.support[i], tasks.queries[i], strict=True)
            known = [self._unused(random, c, n, np.concatenate([k, q])) for c, n, k, q in used]
            others = self._others(random, tasks.classes[i], n_unknown, n_others, excluded[i])
            order = random.permutation(n_pile)
            rows[i] = np.concatenate([*known, others])[order]
            classes[i] = np.repeat([*range(self.n_way), -1], [*counts, n_unknown])[order]
        return Piles(rows, classes)

    def _check_pile(self, n_known: int, n_unknown: int, balance: PileBalance, n_others: int, n_excluded: int) -> None:
        """Refuse piles that some tasks have too few rows for."""
        if not (balance in ("equal", "one") or (is_number(balance) and float(balance) > 0)):
            raise InputError(f"pile_balance is {balance!r}. Choose equal, one, or a concentration above 0.")
        unused = np.sort(self.counts - self.n_rows)
        rooms = {"equal": self.n_way * unused[0], "one": unused[0]}
        room = rooms[balance] if isinstance(balance, str) else unused[: self.n_way].sum()
        if n_known > room:
            raise InputError(
                f"the pile has {n_known} photos of the classes of its task, but apart from support and queries a task "
                f"may have only {room} left. Lower n_pile, n_shot or n_query."
            )
        if n_unknown:
            self._check_others()
            left = np.sort(self.counts)[:n_others].sum() - n_excluded
            if n_unknown > left:
                raise InputError(
                    f"the pile has {n_unknown} photos of other classes, but a task may have only {left} of them. "
                    "Lower n_pile or pile_unknown."
                )

    def _check_others(self) -> None:
        if len(self.counts) == self.n_way:
            raise InputError(f"all {self.n_way} classes are in each task, so there are no others. Lower n_way.")

    def _pile_counts(self, random: np.random.Generator, classes: Rows, n_known: int, balance: PileBalance) -> Rows:
        """Draw how many photos of each class of a task are in its pile, (N,)."""
        if balance == "one":
            return np.bincount([random.integers(self.n_way)], minlength=self.n_way) * n_known
        if balance == "equal":
            return (n_known + random.permutation(self.n_way)) // self.n_way
        room = self.counts[classes] - self.n_rows
        shares = random.dirichlet(np.full(self.n_way, balance))
        counts = np.zeros(self.n_way, dtype=np.int64)
        while (missing := n_known - counts.sum()) > 0:
            free = np.where(counts < room, shares, 0.0)
            free = free if free.any() else (counts < room).astype(float)
            counts = np.minimum(counts + random.multinomial(missing, free / free.sum()), room)
        return counts

    def _unused(self, random: np.random.Generator, c: int, n_rows: int, used: Rows) -> Rows:
        """Draw distinct rows of a class without those that are used."""
        taken = np.sort(self.place[used] - self.first[c])
        chosen = random.choice(self.counts[c] - len(taken), n_rows, replace=False)
        chosen += np.searchsorted(taken - np.arange(len(taken)), chosen, side="right")
        return np.asarray(self.by_class[self.first[c] + chosen])

    def _others(self, random: np.random.Generator, classes: Rows, n_rows: int, n_others: int, excluded: Rows) -> Rows:
        """Draw distinct rows of some classes outside a task, without those that are excluded."""
        if n_others < len(self.counts) - self.n_way:
            left_out = random.permutation(np.delete(np.arange(len(self.counts)), classes))[n_others:]
            classes = np.concatenate([classes, left_out])
        first, sizes = self.first[np.sort(classes)], self.counts[np.sort(classes)]
        skipped = np.concatenate([[0], np.cumsum(sizes)])
        n_left = len(self.by_class) - skipped[-1]
        chosen = random.choice(n_left, min(n_rows + len(excluded), n_left) if n_rows else 0, replace=False)
        chosen += skipped[np.searchsorted(first - skipped[:-1], chosen, side="right")]
        rows = self.by_class[chosen]
        return np.asarray(rows[~np.isin(rows, excluded)][:n_rows])

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
