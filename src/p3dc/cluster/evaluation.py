"""The executor of Ray: tasks run by the processes of a cluster."""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from p3dc._arrays import Progress
from p3dc.cluster.connection import load_ray, n_workers, on_one_core, plain_errors
from p3dc.evaluation.executors import Batch, Draw, MakeRunner, Result, join_shares, run_share, shares_of


def run_on_ray(
    draw: Draw, make_runner: MakeRunner[Result], n_tasks: int, progress: Progress | None = None
) -> Iterator[Result]:
    """Run tasks on the connected Ray cluster; an :class:`p3dc.evaluation.executors.Executor`.

    Features and priors, which come with ``make_runner``, are sent to each machine once. Results are those of
    :func:`p3dc.evaluation.executors.run_serially`, in the same order.
    """
    ray = load_ray()
    work = ray.put((draw, make_runner))
    shares = shares_of(n_tasks, n_workers())
    with plain_errors():
        pending = [on_one_core(_run).remote([work], share) for share in shares]
        found = (ray.get(pending.pop(0)) for _ in shares)
        yield from join_shares(shares, found, progress)


def _run(work: list[Any], share: range) -> tuple[list[str], list[Any]]:
    """Run some tasks; return the warnings of making the runner, and the result of each batch."""
    return run_share(partial(_load, work[0]), share)


@lru_cache(maxsize=1)
def _load(work: Any) -> tuple[Draw, Callable[[Batch], Any]]:
    """Make the runner once in each process."""
    draw, make_runner = load_ray().get(work)
    return draw, make_runner()
