"""Accuracy gained by learning from a pile of unlabelled photos, compared with "auto" on the same tasks.

``python -m benchmarks.pile DATA [--tasks 1000] [--split validation] [--settings NAME ...] [--scenes NAME ...]
[--ways N ...] [--shots K ...] [--rivals] [--jobs 1]``, where DATA holds the folders miniimagenet-resnet12,
cub-resnet12, cub-lite0 and miniimagenet-lite0.

A pile has 75 photos of the classes of its task, or 15 where all are of one class; in some scenes it also has photos of
other classes. Gains are in points, inside the pile and on 5 queries a class outside it. "Lost" is the share of tasks
that lose more than five points, inside and outside. "True labels" is what the same prototypes gain, and how many tasks
lose, if the labels of the pile are known and others removed. AUROC, of auto, with the pile and with the true labels,
measures how well the known photos of the pile are separated from the others. "Groups" is the number of proposed groups
of a task, the share of their photos that belong to the most frequent class of their group, and the share that belong to
none of the classes of the task. With --rivals the table has the gains over auto, inside the pile, of methods that label
all photos together. Each of the jobs makes a row at a time, on one thread.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import product, starmap
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from p3dc import FeatureSet, P3DCClassifier, Priors
from p3dc.baselines.registry import METHODS, TRANSDUCTIVE, Sources
from p3dc.confidence.metrics import Reliability, area_under_roc
from p3dc.confidence.open_set import known_score
from p3dc.confidence.temperature import probabilities
from p3dc.errors import InputError
from p3dc.evaluation.executors import Batch, Draw, Drawing, run_serially
from p3dc.evaluation.results import BatchResult, Comparison, Difference, TaskScores, points
from p3dc.evaluation.runners import WithoutPile, make_runner
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones.loading import load_backbone
from p3dc.unlabelled.evidence import expected_length
from p3dc.unlabelled.refinement import PSEUDO_CLOSED

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
    "a sixth class": {"n_pile": 90, "pile_unknown": 1 / 6, "pile_unknown_classes": 1},
    "others 50 %": {"n_pile": 150, "pile_unknown": 0.5},
    "others 50 %, 5 classes": {"n_pile": 150, "pile_unknown": 0.5, "pile_unknown_classes": 5},
    "others 80 %": {"n_pile": 375, "pile_unknown": 0.8},
}
SIZES: dict[str, dict[str, Any]] = {
    "5 photos": {"n_pile": 5},
    "5 photos, Dirichlet(2)": {"n_pile": 5, "pile_balance": 2.0},
    "14 photos, 4 of a sixth class": {"n_pile": 14, "pile_unknown": 4 / 14, "pile_unknown_classes": 1},
    "75 photos, others 50 %": {"n_pile": 75, "pile_unknown": 0.5},
    "500 photos, others 80 %": {"n_pile": 500, "pile_unknown": 0.8},
}

Result = TypeVar("Result")

N_QUERY = 5
"""Queries of each class outside the pile; few, so that most of a class is left for an unequal pile."""


class Case(NamedTuple):
    """One row of a table."""

    setting: str
    n_way: int
    n_shot: int
    scene: str

    @property
    def drawing(self) -> Drawing:
        return Drawing(self.n_way, self.n_shot, N_QUERY, 0, **(SCENES | SIZES)[self.scene])


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
    bounds: tuple[list[BatchResult], list[BatchResult]] = field(default_factory=lambda: ([], []))
    times: list[float] = field(default_factory=list)
    groups: list[tuple[int, int, int]] = field(default_factory=list)
    used: list[float] = field(default_factory=list)

    @staticmethod
    def fit(classifier: P3DCClassifier, examples: Any, labels: Any, photos: Any, own: Any) -> None:
        """Fit the classifier; the classes of the pile are only for variants that know something of them."""
        classifier.fit(examples, labels, unlabelled=photos)

    def run(self, classifier: P3DCClassifier, features: FeatureSet, batch: Batch) -> None:
        """Fit the classifier to each task once, and measure it inside the pile and outside."""
        rows, tasks, piles = features.features.astype(np.float32), batch.tasks, batch.piles
        assert piles is not None
        n_way, n_shot = tasks.support.shape[1:]
        labels, queried = np.repeat(np.arange(n_way), n_shot), np.repeat(np.arange(n_way), tasks.queries.shape[2])
        for support, queries, pile, own in zip(tasks.support, tasks.queries, piles.rows, piles.classes, strict=True):
            examples, photos, others = rows[support.ravel()], rows[pile], rows[queries.ravel()]
            start = time.perf_counter()
            self.fit(classifier, examples, labels, photos, own)
            self.times.append(time.perf_counter() - start)
            self.used.append(classifier.unlabelled_use_)
            known = own >= 0
            inside = measure(classifier.transduction_proba_[known], own[known])
            self.inside.append(separate(inside, np.asarray(classifier.score_samples(photos)), known))
            self.outside.append(measure(classifier.predict_proba(others), queried))
            classes = features.labels[pile]
            for group in classifier.groups_:
                self.groups.append((len(group), int(np.bincount(classes[group]).max()), int((~known[group]).sum())))
            of_pile, of_others, temperature = true_cosines(classifier, photos, own, others, n_shot)
            inside, outside = (probabilities(each, temperature) for each in (of_pile[known], of_others))
            self.bounds[0].append(separate(measure(inside, own[known]), known_score(of_pile), known))
            self.bounds[1].append(measure(outside, queried))


def true_cosines(classifier: P3DCClassifier, photos: Any, own: Any, others: Any, n_shot: int) -> tuple[Any, Any, float]:
    """Compare a pile and other photos with prototypes that were refined with the true labels, others removed."""
    fitted = classifier._fitted.calibrated
    assert fitted.refinement is not None
    placed = fitted.transform(photos)
    weights = np.equal.outer(own, np.arange(len(classifier.classes_))) / expected_length(PSEUDO_CLOSED * n_shot)
    refinement = replace(
        fitted.refinement, pull=weights.T @ placed, weights=weights, query_offsets=np.zeros(1), coverage=1.0
    )
    true = replace(fitted, refinement=refinement)
    return true.scores_of(placed, weights).cosines, true.cosines(others), true.temperature


def measure(shares: Any, own: Any) -> BatchResult:
    reliability, right = Reliability(), shares.argmax(axis=1) == own
    reliability.add(shares.max(axis=1), right)
    return BatchResult(np.array([right.mean()]), None, reliability)


def separate(result: BatchResult, fit: Any, known: Any) -> BatchResult:
    """Add how well a score separates known photos from others, if there are any."""
    return result if known.all() else replace(result, auroc=area_under_roc(fit[None, known], fit[None, ~known]))


def compare_rows(
    classifiers: Mapping[str, Any], features: FeatureSet, drawing: Drawing, n_tasks: int
) -> dict[str, TaskScores]:
    """Evaluate classifiers on the same tasks."""

    def runners() -> Callable[[Batch], dict[str, BatchResult]]:
        made = {name: make_runner(each, features, with_pile=True) for name, each in classifiers.items()}
        return lambda batch: {name: runner(batch) for name, runner in made.items()}

    batches = list(run_serially(drawing.on(features), runners, n_tasks))
    return {name: TaskScores.from_batches([batch[name] for batch in batches]) for name in classifiers}


def draw_from(features: FeatureSet, drawing: Drawing) -> Draw | None:
    """Return what draws tasks; None where there are too few classes or photos for them."""
    try:
        draw = drawing.on(features)
        draw(range(1))
    except InputError:
        return None
    return draw


GAINS = ["setting", "ways", "shots", "pile", "auto", "inside", "outside", "lost (%)", "true labels", "lost (%)"]
GAINS += ["ECE auto, inside, outside", "AUROC", "groups, pure, others (%)", "used", "ms a fit"]


def gains(data: Path, split: str, n_tasks: int, case: Case) -> str:
    """Make a row of the table of gains over auto."""
    folder, base = SETTINGS[case.setting]
    features, auto = load(data / folder / f"{split}.npz"), P3DCClassifier(priors_of(data, base))
    inside, pile = case.drawing, Pile()
    draw = draw_from(features, inside)
    if draw is None:
        return row(*case, "too few photos", *[""] * (len(GAINS) - 5))
    plain = [
        compare_rows({"": WithoutPile(auto)}, features, each, n_tasks)[""]
        for each in (inside, replace(inside, pile_queries="outside"))
    ]
    list(run_serially(draw, lambda: lambda batch: pile.run(auto, features, batch), n_tasks))
    found = [TaskScores.from_batches(each) for each in (pile.inside, pile.outside)]
    bounds = [TaskScores.from_batches(each) for each in pile.bounds]
    gain, bound = ([difference(*each) for each in zip(scores, plain, strict=True)] for scores in (found, bounds))
    errors = (plain[1].calibration_error, found[0].calibration_error, found[1].calibration_error)
    return row(
        *case,
        f"{100 * plain[0].mean:.1f}",
        *(points(each.mean, each.interval) for each in gain),
        lost(gain),
        ", ".join(f"{100 * each.mean:+.1f}" for each in bound),
        lost(bound),
        ", ".join(f"{error:.3f}" for error in errors),
        areas(plain[0], found[0], bounds[0]),
        purity(pile.groups, n_tasks),
        f"{np.mean(pile.used):.2f}",
        f"{1000 * np.median(pile.times):.0f}",
    )


METHODS_SHOWN = [method for method in METHODS.values() if method.family == TRANSDUCTIVE]
RIVALS = ["setting", "ways", "shots", "pile", "auto", "P3DC, pile", "P3DC, pile promised equal"]
RIVALS += [method.name for method in METHODS_SHOWN]


def rivals(data: Path, split: str, n_tasks: int, case: Case) -> str:
    """Make a row of the table of gains over auto, inside the pile, of methods that label all photos together."""
    folder, base = SETTINGS[case.setting]
    features, priors = load(data / folder / f"{split}.npz"), priors_of(data, base)
    built: dict[str, Any] = {"auto": WithoutPile(P3DCClassifier(priors))}
    built["P3DC, pile"] = P3DCClassifier(priors)
    built["P3DC, pile promised equal"] = P3DCClassifier(priors, pile_balance="equal")
    built |= {method.name: method.build(Sources(priors)) for method in METHODS_SHOWN}
    scores = compare_rows(built, features, case.drawing, n_tasks)
    cells = [points(gain.mean, gain.interval) for gain in Comparison(scores).differences]
    return row(*case, f"{100 * scores['auto'].mean:.1f}", *cells)


def difference(one: TaskScores, two: TaskScores) -> Difference:
    return Comparison({"auto": two, "pile": one}).difference("pile", "auto")


def lost(gains: Sequence[Difference]) -> str:
    return ", ".join(f"{100 * each.lost:.1f}" for each in gains)


def areas(*scores: TaskScores) -> str:
    return ", ".join(f"{np.mean(each.auroc):.3f}" for each in scores if each.auroc is not None)


def purity(groups: list[tuple[int, int, int]], n_tasks: int) -> str:
    if not groups:
        return ""
    sizes, most, others = np.array(groups).sum(axis=0)
    return f"{len(groups) / n_tasks:.2f}, {100 * most / sizes:.0f}, {100 * others / sizes:.0f}"


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def run_case(make: Callable[[Case], Result], case: Case) -> Result:
    with threadpool_limits(1, user_api="blas"):
        return make(case)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--split", choices=("validation", "novel"), default="validation")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="NAME")
    parser.add_argument("--scenes", nargs="+", choices=SCENES | SIZES, default=list(SCENES), metavar="NAME")
    parser.add_argument("--ways", nargs="+", type=int, default=[5], metavar="N")
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 5], metavar="K")
    parser.add_argument("--rivals", action="store_true", help="compare methods that label all photos together")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    cases = starmap(Case, product(given.settings, given.ways, given.shots, given.scenes))
    make, names = (rivals, RIVALS) if given.rivals else (gains, GAINS)
    print(row(*names), "|" + "---|" * len(names), sep="\n", flush=True)
    with ProcessPoolExecutor(given.jobs) as pool:
        for line in pool.map(partial(run_case, partial(make, given.data, given.split, given.tasks)), cases):
            print(line, flush=True)


if __name__ == "__main__":
    main()
