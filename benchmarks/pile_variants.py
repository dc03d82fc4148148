"""Variants of the rule for unlabelled photos, compared with the rule itself on the same tasks.

``python -m benchmarks.pile_variants DATA [--tasks 200] [--split validation] [--settings NAME ...] [--scenes NAME ...]
[--shots K ...] [--jobs 1]``. Each cell has the differences of accuracy to the rule in points, inside the pile and
outside it.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.pile import SCENES, SETTINGS, Case, Pile, difference, load, priors_of, row, run_case
from p3dc import P3DCClassifier
from p3dc._arrays import Array
from p3dc.evaluation.executors import run_serially
from p3dc.evaluation.results import TaskScores, points
from p3dc.unlabelled.mixture import ComponentSums


def match_nothing(sums: ComponentSums, responsibilities: Array, *_: Any, **__: Any) -> Array:
    """Leave each component with the class that it grew from."""
    return np.eye(sums.n_way, responsibilities.shape[1])


def with_cohesion(squared: float) -> dict[str, Any]:
    background = 0.5 * squared**0.5
    return {
        "evidence.COHESION": squared,
        "evidence.RATIO": squared / (1 - squared),
        "grouping.COHESION": squared,
        "mixture.BACKGROUND": background,
        "refinement.COHESION": squared,
        "refinement.BACKGROUND": background,
    }


VARIANTS: dict[str, dict[str, Any]] = {
    "not matched": {"refinement.match_components": match_nothing},
    "2 rows added to each class": {"mixture.SMOOTHING": 2.0},
    "R² = 0.12": with_cohesion(0.12),
    "R² = 0.3": with_cohesion(0.3),
    "classes are present by 0.99": {"mixture.PRESENT": 0.99, "matching.PRESENT": 0.99},
}


def scores_of(classifier: P3DCClassifier, data: Path, split: str, n_tasks: int, case: Case) -> list[TaskScores]:
    """Return the scores of a classifier inside the pile and outside."""
    features, pile = load(data / SETTINGS[case.setting][0] / f"{split}.npz"), Pile()
    list(run_serially(case.drawing.on(features), lambda: partial(pile.run, classifier, features), n_tasks))
    return [TaskScores.from_batches(each) for each in (pile.inside, pile.outside)]


def compare_variants(data: Path, split: str, n_tasks: int, case: Case) -> str:
    """Make a row of the table."""
    classifier, cells = P3DCClassifier(priors_of(data, SETTINGS[case.setting][1])), []
    rule = scores_of(classifier, data, split, n_tasks, case)
    for values in VARIANTS.values():
        with ExitStack() as stack:
            for name, value in values.items():
                stack.enter_context(patch(f"p3dc.unlabelled.{name}", value))
            found = scores_of(classifier, data, split, n_tasks, case)
        gains = [difference(*each) for each in zip(found, rule, strict=True)]
        cells.append(", ".join(points(gain.mean, gain.interval) for gain in gains))
    return row(*case, *cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--split", choices=("validation", "novel"), default="validation")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="NAME")
    parser.add_argument("--scenes", nargs="+", choices=SCENES, default=list(SCENES), metavar="NAME")
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 5], metavar="K")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    cases = [Case(*each) for each in product(given.settings, [5], given.shots, given.scenes)]
    names = ["setting", "ways", "shots", "pile", *VARIANTS]
    print(row(*names), "|" + "---|" * len(names), sep="\n", flush=True)
    make = partial(compare_variants, given.data, given.split, given.tasks)
    with ProcessPoolExecutor(given.jobs) as pool:
        for line in pool.map(partial(run_case, make), cases):
            print(line, flush=True)


if __name__ == "__main__":
    main()
