"""Executors: how the tasks of an evaluation are run, batch by batch, in this process or elsewhere.

:func:`p3dc.cluster.evaluation.run_on_ray` is one more.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from numbers import Integral
from typing import Any, Literal, NamedTuple, Protocol, TypeVar
from uuid import uuid4

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

SHARES = 4
"""Shares of the tasks that each of several processes runs, so that all finish at about the same time."""

MOST = 20 * BATCH
"""Tasks in a share, at most: a few seconds of work."""

Shots = int | Sequence[int]
"""Samples of each class: the same for all, one number for each class of a task, or a range to draw them from."""

PileQueries = Literal["inside", "outside"]
"""Whether the photos of the pile are classified, or queries that are not in it."""


class Batch(NamedTuple):
    """Some tasks, perhaps with queries of classes outside each of them, (T, n_unknown), and a pile of photos for each.

    Where ``inside`` is set, the photos of the pile take the place of the queries. Where classes differ in their number
    of samples, ``shots`` has the numbers, (T, N), and only so many of each class are in the support.
    """

    tasks: Tasks
    unknown: Rows | None = None
    piles: Piles | None = None
    inside: bool = False
    shots: Labels | None = None

    def supports(self, size: int = 1) -> Iterator[tuple[slice, Rows, Labels]]:
        """Yield parts of the tasks whose samples have the same labels, (S,), with the rows of these, (T, S)."""
        n_tasks, n_way, n_shot = self.tasks.support.shape
        shots = np.full((n_tasks, n_way), n_shot) if self.shots is None else self.shots
        size = size if (shots == shots[0]).all() else 1
        for start in range(0, n_tasks, size):
            part = slice(start, start + size)
            kept = np.arange(n_shot) < shots[start][:, None]
            yield part, self.tasks.support[part][:, kept], np.repeat(np.arange(n_way), shots[start])

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
    n_shot: Shots
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
        most: Any = max(self._shot_numbers) if self.unequal else self.n_shot
        options = {"n_way": self.n_way, "n_shot": most, "n_query": self.n_query, "seed": self.seed}
        sampler = TaskSampler(features.labels, **options, class_names=features.class_names)
        return partial(self._draw, sampler)

    @property
    def unequal(self) -> bool:
        """Whether classes may differ in their number of samples."""
        return not isinstance(self.n_shot, Integral) and self.n_shot is not None

    @property
    def _shot_numbers(self) -> list[int]:
        """The numbers of samples: of each class in turn, or to draw from."""
        given: Any = self.n_shot
        if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
            raise InputError(f"n_shot is {given!r}. It must be a whole number, or one for each class of a task.")
        if not isinstance(given, range) and len(given) != self.n_way:
            raise InputError(
                f"n_shot has {len(given)} numbers for {self.n_way} ways. Give one for each class of a task, or "
                "a range such as range(1, 6) to draw a number for each class."
            )
        if not len(given):
            raise InputError(f"n_shot is {given!r}, which has no numbers. Give a range such as range(1, 6).")
        for number in given:
            check_count("n_shot", number, 1)
        return list(given)

    def _draw_shots(self, numbers: range) -> Labels | None:
        """Return the number of samples of each class of each task, (T, N), or None where all have the same."""
        if not self.unequal:
            return None
        choices = np.array(self._shot_numbers)
        if not isinstance(self.n_shot, range):
            return np.tile(choices, (len(numbers), 1))
        return np.stack([np.random.default_rng([self.seed, 3, i]).choice(choices, self.n_way) for i in numbers])

    @property
    def inside(self) -> bool:
        """Whether the photos of a pile are classified."""
        return self.n_pile > 0 and self.pile_queries == "inside"

    def _draw(self, sampler: TaskSampler, numbers: range) -> Batch:
        tasks = sampler.draw(len(numbers), numbers.start)
        unknown = sampler.unknown_queries(tasks, self.n_unknown, numbers.start) if self.n_unknown else None
        shots = self._draw_shots(numbers)
        if not self.n_pile:
            return Batch(tasks, unknown, shots=shots)
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
        return Batch(tasks, unknown, piles, self.inside, shots)


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


def run_in_processes(
    draw: Draw, make_runner: MakeRunner[Result], n_tasks: int, progress: Progress | None = None, *, n_jobs: int
) -> Iterator[Result]:
    """Run tasks in several processes of this machine. Results are those of :func:`run_serially`, in the same order."""
    from joblib import Parallel, delayed

    token = uuid4().hex
    shares = shares_of(n_tasks, n_jobs)
    calls = (delayed(_run_in_worker)(token, draw, make_runner, share) for share in shares)
    found = Parallel(n_jobs=n_jobs, return_as="generator")(calls)
    yield from join_shares(shares, found, progress)


_KEPT: dict[str, tuple[Draw, Callable[[Batch], Any]]] = {}
"""What a worker runs tasks with, under the token of the evaluation that it belongs to."""


def _run_in_worker(
    token: str, draw: Draw, make_runner: MakeRunner[Result], share: range
) -> tuple[list[str], list[Result]]:
    def load() -> tuple[Draw, Callable[[Batch], Any]]:
        if token not in _KEPT:
            _KEPT.clear()
            _KEPT[token] = draw, make_runner()
        return _KEPT[token]

    return run_share(load, share)


def shares_of(n_tasks: int, n_workers: int) -> list[range]:
    """Split the numbers of tasks into shares of whole batches for several processes."""
    size = max(BATCH, min(MOST, n_tasks // (SHARES * n_workers) // BATCH * BATCH))
    return list(batches_of(range(n_tasks), size))


def run_share(
    load: Callable[[], tuple[Draw, Callable[[Batch], Result]]], share: range
) -> tuple[list[str], list[Result]]:
    """Run some tasks; return the warnings of making the runner, and the result of each batch."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        draw, runner = load()
    return [str(warning.message) for warning in caught], [runner(draw(numbers)) for numbers in batches_of(share)]


def join_shares(
    shares: Sequence[range], found: Iterable[tuple[list[str], list[Result]]], progress: Progress | None
) -> Iterator[Result]:
    """Yield the results of shares in order; each warning is given once."""
    warned: set[str] = set()
    for share, (messages, results) in zip(shares, found, strict=True):
        for message in set(messages) - warned:
            warnings.warn(message, stacklevel=2)
        warned.update(messages)
        yield from results
        if progress:
            progress(share.stop, shares[-1].stop)


def choose_executor(executor: Executor | None, n_jobs: int | None, device: Device | None) -> Executor:
    """Return the executor that is given, or else that of several processes, of a device or of NumPy."""
    if n_jobs is None or n_jobs == 1:
        return executor or (run_serially if device is None else run_prefetching)
    if n_jobs == 0 or int(n_jobs) != n_jobs:
        raise InputError(f"n_jobs is {n_jobs!r}. It must be a whole number, -1 for all cores.")
    if executor is not None or device is not None:
        other = "an executor" if executor is not None else "a device"
        raise InputError(f"n_jobs is {n_jobs}, but {other} is given too, which runs all tasks. Leave out one of them.")
    from joblib import effective_n_jobs

    return partial(run_in_processes, n_jobs=effective_n_jobs(n_jobs))


def batches_of(numbers: range, size: int = BATCH) -> Iterator[range]:
    """Split the numbers of tasks into batches."""
    return (numbers[start : start + size] for start in range(0, len(numbers), size))


def step_progress(progress: Progress | None, step: int, n_steps: int) -> Progress | None:
    """Report one of several steps of equal length as a part of the whole."""
    if progress is None:
        return None
    return lambda done, total: progress(step * total + done, n_steps * total)
