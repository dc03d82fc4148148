"""Accuracy gained by learning from a pile of unlabelled photos, compared with "auto" on the same tasks.

``python -m benchmarks.pile DATA [--tasks 1000] [--split validation] [--settings NAME ...] [--scenes NAME ...]
[--shots K ...] [--rivals]``, where DATA holds the folders miniimagenet-resnet12, cub-resnet12, cub-lite0 and
miniimagenet-lite0.

Tasks have 5 ways. A pile has 75 photos of the classes of its task, or 15 where all are of one class; in some scenes
it also has photos of other classes. Gains are in points, inside the pile and on 5 queries a class outside it. "Lost"
is the share of tasks that lose more than five points, inside and outside. AUROC, first of auto and then with the
pile, measures how well the known photos of the pile are separated from the others. "Groups" is the number of proposed
groups of a task, and the share of their photos that belong to the most frequent class of their group. With --rivals
the table has the gains over auto, inside the pile, of methods that label all photos together.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from p3dc import FeatureSet, P3DCClassifier, Priors
from p3dc.baselines.registry import METHODS, TRANSDUCTIVE, Sources
from p3dc.confidence.metrics import Reliability, area_under_roc
from p3dc.evaluation.executors import Batch, Drawing, run_serially
from p3dc.evaluation.results import BatchResult, Comparison, Difference, TaskScores, points
from p3dc.evaluation.runners import WithoutPile, make_runner
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones.loading import load_backbone

SETTINGS = {  # features, base classes
    "cub-lite0, ImageNet head": ("cub-lite0", ""),
    "cub-lite0": ("cub-lite0", "cub-lite0"),
    "cub-resnet12": ("cub-resnet12", "cub-resnet12"),
    "miniimagenet-resnet12": ("miniimagenet-resnet12", "miniimagenet-resnet12"),
    "cub-lite0, miniImageNet": ("cub-lite0", "miniimagenet-lite0"),
}
SCENES: dict[str, dict[str, Any]] = {
    "equal": {"n_pile": 75},
    "Dirichlet(2)": {"n_pile": 75, "pile_balance": 2.0},
    "Dirichlet(0.5)": {"n_pile": 75, "pile_balance": 0.5},
    "one class": {"n_pile": 15, "pile_balance": "one"},
    "others 50 %": {"n_pile": 150, "pile_unknown": 0.5},
    "others 50 %, 5 classes": {"n_pile": 150, "pile_unknown": 0.5, "pile_unknown_classes": 5},
    "others 80 %": {"n_pile": 375, "pile_unknown": 0.8},
}
Cases = Sequence[tuple[str, int]]
"""Scenes and numbers of shots."""

N_WAY = 5
N_QUERY = 5
"""Queries of each class outside the pile; few, so that most of a class is left for an unequal pile."""


@cache
def load(path: Path) -> FeatureSet:
    return FeatureSet.load(path)


@cache
def priors_of(data: Path, base: str) -> Priors:
    if base:
        return Priors.from_features(load(data / base / "base.npz"))
    found = backbone_priors(load_backbone())
    assert found is not None
    return found


@dataclass
class Pile:
    """What a classifier that learns from piles does, collected over tasks."""

    inside: list[BatchResult] = field(default_factory=list)
    outside: list[BatchResult] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    groups: list[tuple[int, int]] = field(default_factory=list)
    used: list[float] = field(default_factory=list)

    def run(self, classifier: P3DCClassifier, features: FeatureSet, batch: Batch) -> None:
        """Fit the classifier to each task once, and measure it inside the pile and outside."""
        rows, tasks, piles = features.features.astype(np.float32), batch.tasks, batch.piles
        assert piles is not None
        labels = np.repeat(np.arange(N_WAY), tasks.support.shape[2])
        queried = np.repeat(np.arange(N_WAY), tasks.queries.shape[2])
        for support, queries, pile, own in zip(tasks.support, tasks.queries, piles.rows, piles.classes, strict=True):
            examples, photos = rows[support.ravel()], rows[pile]
            start = time.perf_counter()
            classifier.fit(examples, labels, unlabelled=photos)
            self.times.append(time.perf_counter() - start)
            self.used.append(classifier.unlabelled_use_)
            known = own >= 0
            inside = measure(classifier.transduction_proba_[known], classifier.transduction_[known] == own[known])
            if not known.all():
                fit = np.asarray(classifier.score_samples(photos))
                inside = replace(inside, auroc=area_under_roc(fit[None, known], fit[None, ~known]))
            shares = classifier.predict_proba(rows[queries.ravel()])
            self.inside.append(inside)
            self.outside.append(measure(shares, shares.argmax(axis=1) == queried))
            classes = features.labels[pile]
            self.groups += [(int(np.bincount(classes[group]).max()), len(group)) for group in classifier.groups_]


def measure(shares: Any, right: Any) -> BatchResult:
    reliability = Reliability()
    reliability.add(shares.max(axis=1), right)
    return BatchResult(np.array([right.mean()]), None, reliability)


def compare_rows(
    classifiers: Mapping[str, Any], features: FeatureSet, drawing: Drawing, n_tasks: int
) -> dict[str, TaskScores]:
    """Evaluate classifiers on the same tasks."""

    def runners() -> Callable[[Batch], dict[str, BatchResult]]:
        made = {name: make_runner(each, features, with_pile=True) for name, each in classifiers.items()}
        return lambda batch: {name: runner(batch) for name, runner in made.items()}

    batches = list(run_serially(drawing.on(features), runners, n_tasks))
    return {name: TaskScores.from_batches([batch[name] for batch in batches]) for name in classifiers}


def gains(
    data: Path, split: str, names: Sequence[str], cases: Sequence[tuple[str, int]], n_tasks: int
) -> Iterator[str]:
    """Write the rows of the table of gains over auto."""
    headings = ["setting", "shots", "pile", "auto", "inside", "outside", "lost (%)", "ECE auto, inside, outside"]
    yield from heading([*headings, "AUROC", "groups", "used", "ms a fit"])
    for name in names:
        folder, base = SETTINGS[name]
        features, auto = load(data / folder / f"{split}.npz"), P3DCClassifier(priors_of(data, base))
        for scene, n_shot in cases:
            inside = Drawing(N_WAY, n_shot, N_QUERY, 0, **SCENES[scene])
            outside = replace(inside, pile_queries="outside")
            plain = [compare_rows({"": WithoutPile(auto)}, features, each, n_tasks)[""] for each in (inside, outside)]
            pile = Pile()
            list(run_serially(inside.on(features), lambda: lambda batch: pile.run(auto, features, batch), n_tasks))  # noqa: B023
            found = [TaskScores.from_batches(each) for each in (pile.inside, pile.outside)]
            gain = [difference(one, two) for one, two in zip(found, plain, strict=True)]
            errors = (plain[1].calibration_error, found[0].calibration_error, found[1].calibration_error)
            yield row(
                name,
                n_shot,
                scene,
                f"{100 * plain[0].mean:.1f}",
                *(points(each.mean, each.interval) for each in gain),
                ", ".join(f"{100 * each.lost:.1f}" for each in gain),
                ", ".join(f"{error:.3f}" for error in errors),
                areas(plain[0], found[0]),
                purity(pile.groups, n_tasks),
                f"{np.mean(pile.used):.2f}",
                f"{1000 * np.median(pile.times):.0f}",
            )


def rivals(
    data: Path, split: str, names: Sequence[str], cases: Sequence[tuple[str, int]], n_tasks: int
) -> Iterator[str]:
    """Write the rows of the table of gains over auto, inside the pile, with methods that label all photos together."""
    methods = [method for method in METHODS.values() if method.family == TRANSDUCTIVE]
    columns = ["P3DC, pile", "P3DC, pile promised equal", *(method.name for method in methods)]
    yield from heading(["setting", "shots", "pile", "auto", *columns])
    for name in names:
        folder, base = SETTINGS[name]
        features, priors = load(data / folder / f"{split}.npz"), priors_of(data, base)
        built: dict[str, Any] = {"auto": WithoutPile(P3DCClassifier(priors))}
        built["P3DC, pile"] = P3DCClassifier(priors)
        built["P3DC, pile promised equal"] = P3DCClassifier(priors, pile_balance="equal")
        built |= {method.name: method.build(Sources(priors)) for method in methods}
        for scene, n_shot in cases:
            scores = compare_rows(built, features, Drawing(N_WAY, n_shot, N_QUERY, 0, **SCENES[scene]), n_tasks)
            found = Comparison(scores)
            cells = [points(gain.mean, gain.interval) for gain in found.differences]
            yield row(name, n_shot, scene, f"{100 * scores['auto'].mean:.1f}", *cells)


def difference(one: TaskScores, two: TaskScores) -> Difference:
    return Comparison({"auto": two, "pile": one}).difference("pile", "auto")


def areas(*scores: TaskScores) -> str:
    return ", ".join(f"{np.mean(each.auroc):.3f}" for each in scores if each.auroc is not None)


def purity(groups: list[tuple[int, int]], n_tasks: int) -> str:
    if not groups:
        return ""
    most, sizes = np.array(groups).sum(axis=0)
    return f"{len(groups) / n_tasks:.1f}, {100 * most / sizes:.0f} %"


def heading(names: Sequence[str]) -> Iterator[str]:
    yield row(*names)
    yield "|" + "---|" * len(names)


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--split", choices=("validation", "novel"), default="validation")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="NAME")
    parser.add_argument("--scenes", nargs="+", choices=SCENES, default=list(SCENES), metavar="NAME")
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 5], metavar="K")
    parser.add_argument("--rivals", action="store_true", help="compare methods that label all photos together")
    given = parser.parse_args()
    cases = [(scene, n_shot) for n_shot in given.shots for scene in given.scenes]
    table = rivals if given.rivals else gains
    for line in table(given.data, given.split, given.settings, cases, given.tasks):
        print(line, flush=True)


if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):
        main()
