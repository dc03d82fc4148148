"""DC against plain independent draws on the same tasks of novel classes.

``python -m benchmarks.dc DATA [--tasks 100]``, where DATA holds the folders miniimagenet-resnet12 and cub-resnet12. The
plain version is DC's publication restated: for each sample one calibrated covariance in float64, draws by its Cholesky
factor, and scikit-learn's logistic regression on samples that are not centred.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from p3dc import FeatureSet
from p3dc.baselines import DC
from p3dc.evaluation.results import half_width
from p3dc.tasks import TaskSampler

N_WAY, N_QUERY, BATCH = 5, 15, 10
OWN = np.repeat(np.arange(N_WAY), N_QUERY)


class PlainDC:
    """DC one task and one sample at a time."""

    def __init__(self, base: FeatureSet) -> None:
        classes = [base.features[base.labels == c].astype(np.float64) for c in range(len(base.class_names))]
        self.means = np.array([rows.mean(axis=0) for rows in classes])
        self.covariances = [np.cov(rows.T) for rows in classes]

    def predict(self, support: Any, labels: Any, queries: Any, rng: np.random.Generator) -> Any:
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
        solver = LogisticRegression(max_iter=1000).fit(np.concatenate(samples), np.concatenate(drawn_labels))
        return solver.predict(np.sqrt(queries.astype(np.float64)))


def compare(folder: Path, n_shot: int, n_tasks: int) -> None:
    base, novel = (FeatureSet.load(folder / f"{part}.npz") for part in ("base", "novel"))
    ours, plain, rows = DC(base), PlainDC(base), novel.features.astype(np.float32)
    labels = np.repeat(np.arange(N_WAY), n_shot)
    tasks = TaskSampler(novel.labels, n_way=N_WAY, n_shot=n_shot, n_query=N_QUERY, seed=0).draw(n_tasks)
    accuracy: dict[str, list[float]] = {"DC": [], "plain": []}
    seconds = dict.fromkeys(accuracy, 0.0)
    ours.learn_tasks(rows[tasks.support[:1].reshape(1, -1)], labels)  # computes what all tasks share
    for start in range(0, n_tasks, BATCH):
        part = slice(start, start + BATCH)
        support = rows[tasks.support[part].reshape(-1, len(labels))]
        queries = rows[tasks.queries[part].reshape(-1, len(OWN))]
        began = time.process_time()
        scores = ours.score_tasks(ours.learn_tasks(support, labels), queries)
        seconds["DC"] += time.process_time() - began
        accuracy["DC"] += list((scores.argmax(axis=-1) == OWN).mean(axis=1))
        began = time.process_time()
        for number, (x, q) in enumerate(zip(support, queries, strict=True), start):
            accuracy["plain"].append(np.mean(plain.predict(x, labels, q, np.random.default_rng(number)) == OWN))
        seconds["plain"] += time.process_time() - began
    gain = 100 * (np.array(accuracy["DC"]) - np.array(accuracy["plain"]))
    level, times = (
        ", ".join(f"{name} {factor * np.sum(values[name]) / n_tasks:{form}}" for name in values)
        for values, factor, form in ((accuracy, 100, ".2f"), (seconds, 1000, ".0f"))
    )
    print(f"{folder.name}, {n_shot} shots, {n_tasks} tasks: {level}; {gain.mean():+.2f} ± {half_width(gain):.2f}; "
          f"milliseconds of processor time a task: {times}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=100)
    given = parser.parse_args()
    with threadpool_limits(1):
        for name in ("miniimagenet-resnet12", "cub-resnet12"):
            for n_shot in (1, 5):
                compare(given.data / name, n_shot, given.tasks)


if __name__ == "__main__":
    main()
