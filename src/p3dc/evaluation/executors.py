"""Executors: how the tasks of an evaluation are run, batch by batch, in this process or elsewhere.

:func:`p3dc.cluster.evaluation.run_on_ray` is one more.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from p3dc._arrays import Labels, Progress, Rows
from p3dc._validation import check_count
from p3dc.errors import InputError
from p3dc.features import FeatureSet
from p3dc.scoring.device_memory import Device
from p3dc.tasks import BLOCK, PileBalance, Piles, Tasks, TaskSampler

Result = TypeVar("Result")

BATCH = 100
"""Tasks that are run together, so that memory does not grow with their number."""


PileQueries = Literal["inside", "outside"]
"""Whether the photos of the pile are classified, or queries that are not in it."""


class Batch(NamedTuple):
    """Some tasks, perhaps with queries of classes outside each of them, (T, n_unknown), and a pile of photos for each.

    Where ``inside`` is set, the photos of the pile take the place of the queries.
    """

    tasks: Tasks
    unknown: Rows | None = None
    piles: Piles | None = None
    inside: bool = False

    def queries(self) -> tuple[Rows, Labels]:
        """Return the rows to classify and their classes within each task, -1 for unknowns, (T, Q) each.

        Each task has the same number of unknowns.
        """
        if self.inside and self.piles is not None:
            return self.piles.rows, self.piles.classes
        n_tasks, n_way, n_query = self.tasks.queries.shape
        unknown = np.empty((n_tasks, 0), dtype=np.int64) if self.unknown is None else self.unknown
        own = np.repeat([*range(n_way), -1], [n_query] * n_way + [unknown.shape[1]])
        rows = np.concatenate([self.tasks.queries.reshape(n_tasks, -1), unknown], axis=1)
        return rows, np.broadcast_to(own, rows.shape)


Draw = Callable[[range], Batch]
"""From the numbers of some tasks to these tasks."""

MakeRunner = Callable[[], Callable[[Batch], Result]]
"""Makes what turns a batch into its result; called once in each process."""


@dataclass(frozen=True)
class Drawing:
    """How tasks are drawn: by the parameters of :func:`p3dc.evaluate`.

    ``pile_unknown_classes`` limits the number of classes that the unknown photos of a pile are of.
    """

    n_way: int
    n_shot: int
    n_query: int
    seed: int
    n_unknown: int = 0
    n_pile: int = 0
    pile_balance: PileBalance = "equal"
    pile_unknown: float = 0.0
    pile_queries: PileQueries = "inside"
    pile_unknown_classes: int | None = None

    def on(self, features: FeatureSet) -> Draw:
        """Return the function that draws tasks of these classes by their numbers."""
        check_count("n_pile", self.n_pile, 0)
        if self.pile_queries not in ("inside", "outside"):
            raise InputError(f"pile_queries is {self.pile_queries!r}. Choose inside or outside.")
        if self.inside and self.n_unknown:
            raise InputError("n_unknown adds queries outside the pile. Set pile_unknown to have unknowns inside it.")
        options = {"n_way": self.n_way, "n_shot": self.n_shot, "n_query": self.n_query, "seed": self.seed}
        sampler = TaskSampler(features.labels, **options, class_names=features.class_names)
        return partial(self._draw, sampler)

    @property
    def inside(self) -> bool:
        """Whether the photos of a pile are classified."""
        return self.n_pile > 0 and self.pile_queries == "inside"

    def _draw(self, sampler: TaskSampler, numbers: range) -> Batch:
        tasks = sampler.draw(len(numbers), numbers.start)
        unknown = sampler.unknown_queries(tasks, self.n_unknown, numbers.start) if self.n_unknown else None
        if not self.n_pile:
            return Batch(tasks, unknown)
        piles = sampler.piles(
            tasks,
            self.n_pile,
            balance=self.pile_balance,
            unknown=self.pile_unknown,
            n_unknown_classes=self.pile_unknown_classes,
            start=numbers.start,
            excluded=unknown,
        )
        if self.inside and piles.classes.max() < 0:
            raise InputError("no photo of the pile is of a class of its task. Lower pile_unknown, or query outside it.")
        return Batch(tasks, unknown, piles, self.inside)


class Executor(Protocol):
    """A way to run tasks."""

    def __call__(
        self, draw: Draw, make_runner: MakeRunner[Result], n_tasks: int, progress: Progress | None = None
    ) -> Iterator[Result]:
        """Make one runner in each process, and yield its result for each batch of tasks, in order."""


def run_serially(
    draw: Draw, make_runner: MakeRunner[Result], n_tasks: int, progress: Progress | None = None
) -> Iterator[Result]:
    """Run tasks in this process, one batch after the other."""
    runner = make_runner()
    for numbers in batches_of(range(n_tasks)):
        yield runner(draw(numbers))
        if progress:
            progress(numbers.stop, n_tasks)


def run_prefetching(
    draw: Draw, make_runner: MakeRunner[Result], n_tasks: int, progress: Progress | None = None
) -> Iterator[Result]:
    """Draw the next tasks in a thread while a device runs the last, in batches that are large enough for it."""
    runner = make_runner()
    batches = list(batches_of(range(n_tasks), BLOCK))
    with ThreadPoolExecutor(1) as thread:
        drawing = thread.submit(draw, batches[0])
        for numbers, following in zip_longest(batches, batches[1:]):
            batch = drawing.result()
            if following is not None:
                drawing = thread.submit(draw, following)
            yield runner(batch)
            if progress:
                progress(numbers.stop, n_tasks)


def default_executor(device: Device | None) -> Executor:
    """Return the executor for a device, or for NumPy where there is none."""
    return run_serially if device is None else run_prefetching


def batches_of(numbers: range, size: int = BATCH) -> Iterator[range]:
    """Split the numbers of tasks into batches."""
    return (numbers[start : start + size] for start in range(0, len(numbers), size))


def step_progress(progress: Progress | None, step: int, n_steps: int) -> Progress | None:
    """Report one of several steps of equal length as a part of the whole."""
    if progress is None:
        return None
    return lambda done, total: progress(step * total + done, n_steps * total)
