"""How many times faster the engine is than the plain loop, in one run and on one thread.

``python -m benchmarks.speed`` generates its own features: 640 of them, 64 priors, 20 classes of 600 rows. The plain
loop of ``tests/reference.py`` is timed on some of the 2,000 tasks, at every point, and scaled up; on the same tasks all
scores and predictions of the two are compared.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from benchmarks.made import make_features
from p3dc import Priors, sample_tasks
from p3dc.adaptive.settings import Settings
from p3dc.evaluation.search import grid
from p3dc.scoring.task_scorer import task_scorer
from p3dc.tasks import Tasks
from tests import reference

N_TASKS = 2000
PLAIN_TASKS = 30
PLAIN = Settings(space="plain")
ONE_POINT = np.array([[0.0, 0.9]])
SETTINGS = [
    # shots, points, how many times faster it must be
    (1, grid(), 300),
    (5, grid(), 100),
    (1, ONE_POINT, 5),
    (5, ONE_POINT, 5),
]


def plain_scores(
    rows: npt.NDArray[np.float32], tasks: Tasks, priors: npt.NDArray[np.float64], points: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    _, n_way, n_shot = tasks.support.shape
    labels = np.repeat(np.arange(n_way), n_shot)
    return np.array(
        [
            [
                reference.scores(rows[support.ravel()], labels, rows[queries.ravel()], priors, alpha=alpha, beta=beta)
                for alpha, beta in points
            ]
            for support, queries in zip(tasks.support, tasks.queries, strict=True)
        ]
    )


def seconds(function: Callable[[], object], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    novel = make_features(0, n_classes=20, n_rows=600)
    priors = Priors.from_features(make_features(1, n_classes=64, n_rows=100)).prototypes
    print("shots  points  plain loop (s)  engine (s)  ratio  must be  largest score error  other counts")
    for n_shot, points, least in SETTINGS:
        options: dict[str, Any] = {"n_shot": n_shot, "n_tasks": N_TASKS, "seed": 0}

        def engine(options: dict[str, Any] = options, points: npt.NDArray[np.float64] = points) -> None:
            task_scorer(novel.features, priors, PLAIN, points).correct(sample_tasks(novel.labels, **options))

        few = sample_tasks(novel.labels, **(options | {"n_tasks": PLAIN_TASKS}))
        start = time.perf_counter()
        expected = plain_scores(novel.features, few, priors, points)
        slow = (time.perf_counter() - start) * N_TASKS / PLAIN_TASKS
        fast = seconds(engine, repeat=3)
        scorer = task_scorer(novel.features, priors, PLAIN, points)
        error = np.abs(scorer.scores(few) - expected).max()
        own = np.repeat(np.arange(5), 15)
        other = np.abs((expected.argmax(axis=-1) == own).sum(axis=-1) - scorer.correct(few)).sum()
        print(
            f"{n_shot:>5}  {len(points):>6}  {slow:>14.1f}  {fast:>10.2f}  {slow / fast:>5.0f}  {least:>7}  "
            f"{error:>19.1e}  {other:>12}"
        )


if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):
        main()
