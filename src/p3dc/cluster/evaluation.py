"""Tasks measured by the processes of a Ray."""

import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from p3dc.cluster.connection import SHARES, load_ray, n_workers, on_one_core, plain_errors
from p3dc.evaluation.evaluate import BATCH, Measure, Part, Progress, batches_of

MOST = 20 * BATCH
"""Tasks that a process measures before it reports: a few seconds of work."""


def run_on_ray(prepare: Callable[[], Measure[Part]], n_tasks: int, progress: Progress | None = None) -> Iterator[Part]:
    """Measure tasks on a Ray that is joined; a :class:`p3dc.evaluation.evaluate.Executor`.

    Features and priors, which come with ``prepare``, are sent to each machine once. What comes back for each batch of
    tasks is what :func:`p3dc.evaluation.evaluate.run_serially` gives, in the same order.
    """
    ray = load_ray()
    work = ray.put(prepare)
    size = max(BATCH, min(MOST, n_tasks // (SHARES * n_workers()) // BATCH * BATCH))
    shares = [range(start, min(start + size, n_tasks)) for start in range(0, n_tasks, size)]
    with plain_errors():
        coming = [on_one_core(_measure).remote([work], share) for share in shares]
        told: set[str] = set()
        for share in shares:
            messages, parts = ray.get(coming.pop(0))
            for message in set(messages) - told:
                warnings.warn(message, stacklevel=2)
            told.update(messages)
            yield from parts
            if progress:
                progress(share.stop, n_tasks)


def _measure(work: list[Any], share: range) -> tuple[list[str], list[Any]]:
    """Measure some tasks, and tell what the preparation warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        measure = _prepared(work[0])
    return [str(warning.message) for warning in caught], [measure(numbers) for numbers in batches_of(share)]


@lru_cache(maxsize=1)
def _prepared(work: Any) -> Measure[Any]:
    """Prepare once in each process."""
    prepare: Callable[[], Measure[Any]] = load_ray().get(work)
    return prepare()
