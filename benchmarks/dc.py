"""DC against plain independent draws on the same tasks of validation classes.

``python -m benchmarks.dc DATA [--tasks 100] [--jobs 2]``, where DATA holds the folders miniimagenet-resnet12 and
cub-resnet12. The plain version is DC's publication restated: for each sample one calibrated covariance in float64,
draws by its Cholesky factor, and scikit-learn's logistic regression on samples that are not centred. It is solved with
two tolerances: that of scikit-learn when DC was published, whose solver stopped by the slope of the sum of the losses,
and today's default, which applies to their mean (since version 1.4) and stops before the optimum.
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from p3dc import FeatureSet
from p3dc.baselines import DC
from p3dc.evaluation.results import half_width
from p3dc.tasks import TaskSampler

N_WAY, N_QUERY = 5, 15
OWN = np.repeat(np.arange(N_WAY), N_QUERY)


class PlainDC:
    """DC one task and one sample at a time."""

    def __init__(self, base: FeatureSet) -> None:
        classes = [base.features[base.labels == c].astype(np.float64) for c in range(len(base.class_names))]
        self.means = np.array([rows.mean(axis=0) for rows in classes])
        self.covariances = [np.cov(rows.T) for rows in classes]

    def predict(self, support: Any, labels: Any, queries: Any, rng: np.random.Generator) -> list[Any]:
        transformed, n_features = np.sqrt(support.astype(np.float64)), support.shape[1]
        n_draws = 750 // np.count_nonzero(labels == 0)
        samples, drawn_labels = [transformed], [labels]
        for x, label in zip(transformed, labels, strict=True):
            first, second = np.argsort(np.linalg.norm(self.means - x, axis=1))[:2]
            covariance = (self.covariances[first] + self.covariances[second]) / 2 + 0.21
            factor = np.linalg.cholesky(covariance + 1e-8 * np.eye(n_features)).T
            mean = (self.means[first] + self.means[second] + x) / 3
            samples.append(mean + rng.standard_normal((n_draws, n_features)) @ factor)
            drawn_labels.append(np.full(n_draws, label))
        rows, labels, asked = np.concatenate(samples), np.concatenate(drawn_labels), np.sqrt(queries.astype(np.float64))
        return [
            LogisticRegression(tol=tolerance, max_iter=1000).fit(rows, labels).predict(asked)
            for tolerance in (1e-4 / len(rows), 1e-4)
        ]


class Compared(NamedTuple):
    """Accuracies, (3, T), of DC and of the plain version with both tolerances; seconds of processor time, (2, T)."""

    accuracy: Any
    seconds: Any


def compare(folder: Path, n_shot: int, tasks: slice) -> Compared:
    base, validation = (FeatureSet.load(folder / f"{part}.npz") for part in ("base", "validation"))
    ours, plain, rows = DC(base), PlainDC(base), validation.features.astype(np.float32)
    labels = np.repeat(np.arange(N_WAY), n_shot)
    sampler = TaskSampler(validation.labels, n_way=N_WAY, n_shot=n_shot, n_query=N_QUERY, seed=0)
    drawn = sampler.draw(tasks.stop)
    ours.learn_tasks(rows[drawn.support[:1].reshape(1, -1)], labels)  # computes what all tasks share
    accuracy, seconds = [], []
    for number in range(tasks.start, tasks.stop):
        support, queries = rows[drawn.support[number].ravel()], rows[drawn.queries[number].ravel()]
        began = time.process_time()
        scores = ours.score_tasks(ours.learn_tasks(support[None], labels), queries[None])[0]
        middle = time.process_time()
        found = plain.predict(support, labels, queries, np.random.default_rng(number))
        seconds.append((middle - began, time.process_time() - middle))
        accuracy.append([np.mean(each == OWN) for each in (scores.argmax(axis=-1), *found)])
    return Compared(np.transpose(accuracy), np.transpose(seconds))


def report(folder: Path, n_shot: int, parts: list[Compared]) -> None:
    accuracy, seconds = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
    (ours, published, today), (fast, slow) = 100 * accuracy, 1000 * seconds.mean(axis=1)
    print(
        f"{folder.name}, {n_shot} shots, {len(ours)} tasks: milliseconds of processor time {fast:.0f}, plain {slow:.0f}"
    )
    print(f"  DC {ours.mean():.2f}, plain {published.mean():.2f}, plain with today's tolerance {today.mean():.2f}")
    for what, gain in {
        "DC − plain": ours - published,
        "DC − plain with today's tolerance": ours - today,
        "plain − plain with today's tolerance, same draws": published - today,
    }.items():
        print(f"  {what}: {gain.mean():+.2f} ± {half_width(gain):.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    edges = np.linspace(0, given.tasks, given.jobs + 1).astype(int)
    parts = [slice(int(start), int(stop)) for start, stop in pairwise(edges)]
    with ProcessPoolExecutor(given.jobs, initializer=threadpool_limits, initargs=(1,)) as pool:
        for name in ("miniimagenet-resnet12", "cub-resnet12"):
            for n_shot in (1, 5):
                folder = given.data / name
                report(folder, n_shot, list(pool.map(compare, repeat(folder), repeat(n_shot), parts)))


if __name__ == "__main__":
    main()
