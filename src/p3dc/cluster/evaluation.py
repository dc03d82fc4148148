"""The executor of Ray: tasks run by the processes of a cluster."""

import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from p3dc._arrays import Progress
from p3dc.cluster.connection import SHARES, load_ray, n_workers, on_one_core, plain_errors
from p3dc.evaluation.executors import BATCH, Batch, Draw, MakeRunner, Result, batches_of

MOST = 20 * BATCH
"""Tasks that a process runs before it reports: a few seconds of work."""


def run_on_ray(
    draw: Draw, make_runner: MakeRunner[Result], n_tasks: int, progress: Progress | None = None
) -> Iterator[Result]:
    """Run tasks on the connected Ray cluster; an :class:`p3dc.evaluation.executors.Executor`.

    Features and priors, which come with ``make_runner``, are sent to each machine once. Results are those of
    :func:`p3dc.evaluation.executors.run_serially`, in the same order.
    """
    ray = load_ray()
    work = ray.put((draw, make_runner))
    size = max(BATCH, min(MOST, n_tasks // (SHARES * n_workers()) // BATCH * BATCH))
    shares = list(batches_of(range(n_tasks), size))
    with plain_errors():
        pending = [on_one_core(_run).remote([work], share) for share in shares]
        warned: set[str] = set()
        for share in shares:
            messages, results = ray.get(pending.pop(0))
            for message in set(messages) - warned:
                warnings.warn(message, stacklevel=2)
            warned.update(messages)
            yield from results
            if progress:
                progress(share.stop, n_tasks)


def _run(work: list[Any], share: range) -> tuple[list[str], list[Any]]:
    """Run some tasks; return the warnings of making the runner, and the result of each batch."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        draw, runner = _load(work[0])
    return [str(warning.message) for warning in caught], [runner(draw(numbers)) for numbers in batches_of(share)]


@lru_cache(maxsize=1)
def _load(work: Any) -> tuple[Draw, Callable[[Batch], Any]]:
    """Make the runner once in each process."""
    draw, make_runner = load_ray().get(work)
    return draw, make_runner()
