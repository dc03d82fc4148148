"""Variants of the rule for adaptive weights that were not taken: on validation and base classes, never on novel ones.

``python -m benchmarks.auto_trials DATA [--tasks 500]``, with DATA as in ``benchmarks.auto``. It prints what each
variant gains over the rule, in points with 95 % intervals, for the pairs of ``benchmarks.auto_steps``, and then the
shares of unknown and of known queries that ``reject`` turns away, the smallest and the largest of all settings.
"""

import argparse
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.auto import signed
from benchmarks.auto_steps import pairs
from p3dc import FeatureSet, P3DCClassifier, Priors, compare
from p3dc._arrays import Array
from p3dc.tasks import TaskSampler

WEIGHTS: dict[str, dict[str, Any]] = {
    "α = 1": {"alpha": 1.0, "beta": 0.0},
    "α = β = 0.5": {"alpha": 0.5, "beta": 0.5},
    "β = 1": {"alpha": 0.0, "beta": 1.0},
    "plain averages": {"attention": "mean"},
}
AXES = {"32 axes": 32, "all axes": 10**6}
REJECTED = (0.5, 0.8, 0.95)


def variants(base: FeatureSet) -> dict[str, P3DCClassifier]:
    """Make the rule and its variants."""
    priors = Priors.from_features(base)
    found = {"rule": P3DCClassifier(priors)}
    found |= {name: P3DCClassifier(priors, **weights) for name, weights in WEIGHTS.items()}
    for name, n_axes in AXES.items():
        with patch("p3dc.priors.geometry.N_AXES", n_axes):
            other = Priors.from_features(base)
            assert other.geometry is not None
            found[name] = P3DCClassifier(other)
    return found


def rejected(priors: Priors, classes: FeatureSet, n_way: int, n_shot: int, n_tasks: int) -> Array:
    """Measure the shares of unknown and of known queries that are rejected, (3, 2)."""
    sampler = TaskSampler(classes.labels, n_way=n_way, n_shot=n_shot, n_query=15, seed=1)
    tasks = sampler.draw(n_tasks)
    unknown = sampler.unknown_queries(tasks, n_way * 15)
    rows, labels = classes.features.astype(np.float64), np.repeat(np.arange(n_way), n_shot)
    shares = []
    for i in range(n_tasks):
        support, asked = rows[tasks.support[i].ravel()], (rows[unknown[i]], rows[tasks.queries[i].ravel()])
        fitted = [P3DCClassifier(priors, reject=share).fit(support, labels) for share in REJECTED]
        shares.append([[np.mean(each.predict(queries) == -1) for queries in asked] for each in fitted])
    return np.mean(shares, axis=0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=500)
    given = parser.parse_args()
    print(f"| priors and classes | shots | {' | '.join([*WEIGHTS, *AXES])} |")
    print("|---|---|" + "---|" * len([*WEIGHTS, *AXES]))
    for name, base, classes in pairs(given.data):
        rivals = variants(base)
        for n_shot in (1, 5):
            found = compare(rivals, classes, n_shot=n_shot, n_tasks=given.tasks, seed=1)
            gains = [found.difference(rival, "rule") for rival in rivals if rival != "rule"]
            cells = [signed([gain.mean, gain.interval]) for gain in gains]
            print(f"| {name} | {n_shot} | {' | '.join(cells)} |", flush=True)
    print("\n| `reject` | unknown queries rejected | known queries rejected |\n|---|---|---|")
    shares = [
        rejected(Priors.from_features(base), classes, n_way, n_shot, given.tasks // 10)
        for _, base, classes in pairs(given.data)
        for n_way, n_shot in ((5, 1), (5, 5), (10, 1), (10, 5))
        if n_way < len(classes.class_names)
    ]
    for share, each in zip(REJECTED, 100 * np.stack(shares, axis=1), strict=True):
        ranges = [f"{low:.0f} to {high:.0f} %" for low, high in zip(each.min(axis=0), each.max(axis=0), strict=True)]
        print(f"| {share} | {' | '.join(ranges)} |")


if __name__ == "__main__":
    main()
