"""Peak memory of an evaluation and of a search, each in a process of its own: ``python -m benchmarks.memory``.

12,000 rows of 640 features (31 MB), 15 queries of a class. "evaluate" and "search" are the paper's plain space, "auto"
is the default. "import" is the memory of Python, its packages and the generated features.
"""

import resource
import subprocess
import sys
import time
from typing import Any

from benchmarks.made import make_features
from p3dc import P3DCClassifier, Priors, evaluate, search

SETTINGS = [
    # what, tasks, ways, shots, base classes
    ("import", 0, 5, 1, 64),
    ("evaluate", 1_000, 5, 5, 64),
    ("evaluate", 10_000, 5, 5, 64),
    ("auto", 1_000, 5, 5, 64),
    ("auto", 10_000, 5, 5, 64),
    ("search", 1_000, 5, 5, 64),
    ("search", 10_000, 5, 5, 64),
    ("import", 0, 5, 5, 21_000),
    ("evaluate", 1_000, 5, 5, 21_000),
    ("evaluate", 10, 20, 20, 21_000),
    ("auto", 200, 5, 5, 21_000),
    ("search", 10, 20, 20, 21_000),
    ("evaluate", 1_000, 5, 1, 64),
    ("evaluate", 100_000, 5, 1, 64),
    ("evaluate", 1_000_000, 5, 1, 64),
]


def work(what: str, n_tasks: int, n_way: int, n_shot: int, n_base: int) -> None:
    novel = make_features(0, n_classes=20, n_rows=600)
    priors = Priors.from_features(make_features(1, n_classes=n_base, n_rows=2))
    drawing: dict[str, Any] = {"n_way": n_way, "n_shot": n_shot, "n_tasks": n_tasks}
    start = time.process_time()
    if what == "evaluate":
        evaluate(P3DCClassifier(priors, alpha=0.0, beta=0.9, space="plain"), novel, **drawing)
    elif what == "auto":
        evaluate(P3DCClassifier(priors), novel, **drawing)
    elif what == "search":
        search(priors, novel, **drawing)
    elapsed = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{what:>8}  {n_tasks:>9,}  {n_way:>4}  {n_shot:>5}  {n_base:>12,}  {peak:>9,.0f}  {elapsed:>18.1f}", flush=True
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(sys.argv[1], *map(int, sys.argv[2:]))
    else:
        print("    what      tasks  ways  shots  base classes  peak (MB)  processor time (s)", flush=True)
        for setting in SETTINGS:
            subprocess.run([sys.executable, "-m", "benchmarks.memory", *map(str, setting)], check=True)
