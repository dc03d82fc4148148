"""Executors: how the tasks of an evaluation are run, batch by batch, in this process or elsewhere.

:func:`p3dc.cluster.evaluation.run_on_ray` is one more.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import NamedTuple, Protocol, TypeVar

from p3dc._arrays import Progress, Rows
from p3dc.features import FeatureSet
from p3dc.scoring.device_memory import Device
from p3dc.tasks import BLOCK, Tasks, TaskSampler

Result = TypeVar("Result")

BATCH = 100
"""Tasks that are run together, so that memory does not grow with their number."""


class Batch(NamedTuple):
    """Some tasks and, for an open-set evaluation, rows of classes outside each of them, (T, n_unknown)."""

    tasks: Tasks
    unknown: Rows | None = None


Draw = Callable[[range], Batch]
"""From the numbers of some tasks to these tasks."""

MakeRunner = Callable[[], Callable[[Batch], Result]]
"""Makes what turns a batch into its result; called once in each process."""


@dataclass(frozen=True)
class Drawing:
    """How tasks are drawn: the parameters of :func:`p3dc.sample_tasks`, and queries of classes outside each task."""

    n_way: int
    n_shot: int
    n_query: int
    seed: int
    n_unknown: int = 0

    def on(self, features: FeatureSet) -> Draw:
        """Return the function that draws tasks of these classes by their numbers."""
        options = {"n_way": self.n_way, "n_shot": self.n_shot, "n_query": self.n_query, "seed": self.seed}
        sampler = TaskSampler(features.labels, **options, class_names=features.class_names)
        return partial(_draw, sampler, self.n_unknown)


def _draw(sampler: TaskSampler, n_unknown: int, numbers: range) -> Batch:
    tasks = sampler.draw(len(numbers), numbers.start)
    return Batch(tasks, sampler.unknown_queries(tasks, n_unknown, numbers.start) if n_unknown else None)


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
