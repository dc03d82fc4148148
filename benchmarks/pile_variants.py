"""Variants of the rule for unlabelled photos, compared with the rule itself on the same tasks.

``python -m benchmarks.pile_variants DATA [--tasks 200] [--split validation] [--settings NAME ...] [--scenes NAME ...]
[--ways N ...] [--shots K ...] [--variants NAME ...] [--jobs 1]``. The first column of figures has the gains of the rule
over auto, the others the differences of accuracy to the rule, in points, inside the pile and outside it.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.pile import (
    SCENES,
    SETTINGS,
    SIZES,
    Case,
    Pile,
    compare_rows,
    difference,
    draw_from,
    load,
    priors_of,
    row,
    run_case,
)
from p3dc import P3DCClassifier
from p3dc._arrays import Array
from p3dc.evaluation.executors import run_serially
from p3dc.evaluation.results import TaskScores, points
from p3dc.evaluation.runners import WithoutPile
from p3dc.method import masked_softmax
from p3dc.unlabelled.evidence import discount
from p3dc.unlabelled.mixture import ComponentSums, fit_open
from p3dc.unlabelled.refinement import Refinement
from p3dc.unlabelled.shares import EQUAL, UNEQUAL, Offsets


def match_nothing(sums: ComponentSums, responsibilities: Array, *_: Any) -> Array:
    """Leave each component with the class that it grew from."""
    return np.eye(sums.n_way, responsibilities.shape[1])


def trust_all(counts: Array, *_: Any) -> Array:
    """Count every row in full."""
    return counts


def trust_closed(counts: Array, by_support: Array, known: float) -> Array:
    """Count rows in full in the closed mixture, and for four together at most in the open one."""
    return counts if known == 1 else counts / (1 + counts.sum(axis=0) / 4)


def trust_by_class(counts: Array, by_support: Array, known: float) -> Array:
    """Take the agreement of each class instead of that of all together."""
    n_rows = counts.sum(axis=0)
    return counts * discount(n_rows, known * (counts * by_support).sum(axis=0) / np.maximum(n_rows, 1e-12))


def leave_out_own_part(
    self: Refinement, along: Array, together: Array, rows: Array, own_weights: Array | float | None = None
) -> Array:
    """Compare a row of the pile with other classes as they are, and with its own without its part."""
    weights = 0.0 if own_weights is None else own_weights
    products = along + rows @ self.pull.T
    squares = 1 + 2 * together + np.vecdot(self.pull, self.pull) - 2 * weights * products + weights**2
    return (products - weights) / np.sqrt(np.maximum(squares, 1e-12))


def add_nothing(*_: Any) -> Offsets:
    """Take the classes to be equal and their logits to be right."""
    return lambda logits: np.zeros(logits.shape[1])


def anneal(sums: ComponentSums, temperature: float, offsets: Offsets) -> Array:
    """Fit the closed mixture at a temperature that falls from twice its value in the first ten of twenty rounds."""
    responsibilities: Array = np.zeros(sums.cross.shape, dtype=np.float32)
    for factor in np.maximum(np.linspace(2, 0, 21)[:20], 1):
        logits = sums.cosines(responsibilities) / temperature
        responsibilities = masked_softmax((logits + offsets(logits)) / factor, None)
    return responsibilities.astype(np.float64)


def fit_without_groups(sums: ComponentSums, groups: Array, *others: Any) -> Array:
    """Fit the open mixture with classes and a background alone."""
    return fit_open(sums, sums.n_way + np.arange(len(groups)), *others)


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
    "rows count in full": {"refinement._trusted": trust_all},
    "for 4 at most, closed in full": {"refinement._trusted": trust_closed},
    "agreement by class": {"refinement._trusted": trust_by_class},
    "half are known": {"refinement.KNOWN": 1 / 2},
    "three quarters are known": {"refinement.KNOWN": 3 / 4},
    "own part left out": {"refinement.Refinement.cosines": leave_out_own_part},
    "not matched": {"refinement.match_components": match_nothing},
    "closed mixture only": {"refinement._ramp": lambda *_: 1.0},
    "background without groups": {"refinement.fit_open": fit_without_groups},
    "2K pseudo-rows in the closed mixture": {"refinement.PSEUDO_CLOSED": 2.0},
    "R² = 0.12": with_cohesion(0.12),
    "R² = 0.3": with_cohesion(0.3),
    "no offsets": {"refinement.offsets_by": add_nothing},
    "surely equal": {"refinement._judge_spreads": lambda *_: EQUAL},
    "surely unequal": {"refinement._judge_spreads": lambda *_: UNEQUAL},
    "errors of variance 0.25": {"shares.ERROR": 0.25},
    "errors of variance 1": {"shares.ERROR": 1.0},
    "few rows may be equal": {"shares.FEW": 0.0},
    "annealed": {"refinement.fit_closed": anneal},
    "classes are present by 0.5": {"mixture.PRESENT": 0.5, "matching.PRESENT": 0.5},
    "classes are present by 0.99": {"mixture.PRESENT": 0.99, "matching.PRESENT": 0.99},
}


def scores_of(classifier: P3DCClassifier, data: Path, split: str, n_tasks: int, case: Case) -> list[TaskScores]:
    """Return the scores of a classifier inside the pile and outside."""
    features, pile = load(data / SETTINGS[case.setting][0] / f"{split}.npz"), Pile()
    list(run_serially(case.drawing.on(features), lambda: partial(pile.run, classifier, features), n_tasks))
    return [TaskScores.from_batches(each) for each in (pile.inside, pile.outside)]


def compare_variants(data: Path, split: str, n_tasks: int, names: list[str], case: Case) -> str:
    """Make a row of the table."""
    classifier = P3DCClassifier(priors_of(data, SETTINGS[case.setting][1]))
    features, drawing = load(data / SETTINGS[case.setting][0] / f"{split}.npz"), case.drawing
    if draw_from(features, drawing) is None:
        return row(*case, "too few photos", *[""] * len(names))
    auto = [
        compare_rows({"": WithoutPile(classifier)}, features, each, n_tasks)[""]
        for each in (drawing, replace(drawing, pile_queries="outside"))
    ]
    rule = scores_of(classifier, data, split, n_tasks, case)
    cells = [gains(rule, auto)]
    for name in names:
        with ExitStack() as stack:
            for attribute, value in VARIANTS[name].items():
                stack.enter_context(patch(f"p3dc.unlabelled.{attribute}", value))
            cells.append(gains(scores_of(classifier, data, split, n_tasks, case), rule))
    return row(*case, *cells)


def gains(found: list[TaskScores], than: list[TaskScores]) -> str:
    differences = [difference(*each) for each in zip(found, than, strict=True)]
    return ", ".join(points(each.mean, each.interval) for each in differences)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--split", choices=("validation", "novel"), default="validation")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="NAME")
    parser.add_argument("--scenes", nargs="+", choices=SCENES | SIZES, default=list(SCENES), metavar="NAME")
    parser.add_argument("--ways", nargs="+", type=int, default=[5], metavar="N")
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 5], metavar="K")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    cases = [Case(*each) for each in product(given.settings, given.ways, given.shots, given.scenes)]
    names = ["setting", "ways", "shots", "pile", "rule", *given.variants]
    print(row(*names), "|" + "---|" * len(names), sep="\n", flush=True)
    make = partial(compare_variants, given.data, given.split, given.tasks, given.variants)
    with ProcessPoolExecutor(given.jobs) as pool:
        for line in pool.map(partial(run_case, make), cases):
            print(line, flush=True)


if __name__ == "__main__":
    main()
