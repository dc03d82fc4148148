"""How many labels a user has to give until a pile is labelled right, by the order in which photos are asked for.

``python -m benchmarks.asking DATA [--tasks 40] [--ways 10] [--pile 100]``, where DATA holds the folders below. On the
validation classes of each, tasks begin with one example a class and a pile of equally many photos of each class. Five
labels are given at a time, by the order of the page, by doubt alone, or at random; after each five the classifier is
fitted anew. A photo whose label was given counts as right.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from p3dc import FeatureSet, Priors
from p3dc._arrays import Floats, Labels, Rows
from p3dc.adaptive.settings import Settings
from p3dc.classifier.fitted import FittedClassifier
from p3dc.confidence.asking import asking_order, doubt
from p3dc.method import l2_normalize

FOLDERS = ("cub-lite0", "cub-resnet12", "miniimagenet-resnet12")
STEP = 5
GIVEN = (0, 10, 20, 30, 40)
TARGET = 0.95

Order = Callable[[Floats, Floats, np.random.Generator], Rows]
ORDERS: dict[str, Order] = {
    "page": lambda doubts, rows, _: asking_order(doubts, rows),
    "doubt": lambda doubts, _rows, _: np.argsort(-doubts, kind="stable"),
    "random": lambda doubts, _rows, rng: rng.permutation(len(doubts)),
}


def draw(labels: Labels, n_way: int, n_pile: int, rng: np.random.Generator) -> tuple[Rows, Rows, Labels]:
    """Draw one example of each class, then the pile and its labels."""
    classes = rng.choice(np.unique(labels), n_way, replace=False)
    rows = [rng.permutation(np.flatnonzero(labels == each))[: 1 + n_pile // n_way] for each in classes]
    pile = np.concatenate([own[1:] for own in rows])
    return np.array([own[0] for own in rows]), pile, np.repeat(np.arange(n_way), [len(own) - 1 for own in rows])


def run(features: Floats, priors: Priors, task: tuple[Rows, Rows, Labels], order: Order, seed: int) -> list[float]:
    """Return the share of the pile that is labelled right after 0, 5, 10 and so on labels."""
    support, pile, truth = task
    rng, given, right = np.random.default_rng(seed), np.zeros(len(pile), dtype=bool), []
    n_way = len(support)
    while not given.all():
        rows = np.concatenate([support, pile[given]])
        labels = np.concatenate([np.arange(n_way), truth[given]])
        fitted = FittedClassifier(features[rows], labels, np.arange(n_way), priors, Settings())
        cosines = fitted.score(features[pile]).cosines
        right.append(float(np.mean(given | (cosines.argmax(axis=1) == truth))))
        open_rows = np.flatnonzero(~given)
        transformed = l2_normalize(fitted.calibrated.transform(features[pile[open_rows]]))
        asked = order(doubt(fitted.probabilities(cosines[open_rows])), transformed, rng)[:STEP]
        given[open_rows[asked]] = True
    return [*right, 1.0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--ways", type=int, default=10)
    parser.add_argument("--pile", type=int, default=100)
    asked = parser.parse_args()
    print(f"features, order, % right after {', '.join(map(str, GIVEN))} labels; labels until {TARGET:.0%} are right")
    for name in FOLDERS:
        priors = Priors.from_features(FeatureSet.load(asked.data / name / "base.npz"))
        validation = FeatureSet.load(asked.data / name / "validation.npz")
        features, rng = np.asarray(validation.features, dtype=np.float64), np.random.default_rng(0)
        tasks = [draw(validation.labels, asked.ways, asked.pile, rng) for _ in range(asked.tasks)]
        needed = {}
        for key, order in ORDERS.items():
            curves = [run(features, priors, task, order, seed) for seed, task in enumerate(tasks)]
            needed[key] = np.array([STEP * int(np.argmax(np.array(curve) >= TARGET)) for curve in curves])
            at = [np.mean([curve[min(n // STEP, len(curve) - 1)] for curve in curves]) for n in GIVEN]
            print(f"{name:>22} {key:>7}", *(f"{100 * each:6.1f}" for each in at), f"{needed[key].mean():6.1f}")
        for key in ("page", "doubt"):
            saved = needed["random"] - needed[key]
            half = 1.96 * saved.std(ddof=1) / len(saved) ** 0.5
            print(f"{name:>22} {key:>7} saves {saved.mean():.1f} ± {half:.1f} labels against random")


if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):
        main()
