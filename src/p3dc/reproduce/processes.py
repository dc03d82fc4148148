"""Parts of a study in several processes, which leave their results in the cache."""

import pickle
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from p3dc._arrays import Progress


class Part(NamedTuple):
    """A part of a study: the method that computes it or reads it from the cache, and its arguments."""

    method: str
    arguments: tuple[Any, ...]

    def finish(self, work: Any) -> Any:
        """Compute or read it."""
        return getattr(work, self.method)(*self.arguments)


def finish_in_processes(work: Any, jobs: Sequence[Sequence[Part]], n_jobs: int, progress: Progress | None) -> None:
    """Finish all parts, those of one job after each other in the same process. A worker reads the features once."""
    from joblib import Parallel, delayed

    with TemporaryDirectory() as folder:
        path = Path(folder) / "work.pickle"
        path.write_bytes(pickle.dumps(work, protocol=pickle.HIGHEST_PROTOCOL))
        calls = (delayed(_finish_job)(path, job) for job in jobs)
        found = Parallel(n_jobs=min(n_jobs, len(jobs)), batch_size=1, return_as="generator_unordered")(calls)
        for done, _ in enumerate(found, start=1):
            if progress:
                progress(done, len(jobs))


def _finish_job(path: Path, job: Sequence[Part]) -> None:
    with threadpool_limits(1, user_api="blas"):
        for part in job:
            part.finish(_load(path))


@lru_cache(maxsize=1)
def _load(path: Path) -> Any:
    return pickle.loads(path.read_bytes())
