"""What calibration does to single support samples: where they move, and how Eq. 6 shares out its weights."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from p3dc import method
from p3dc._arrays import Array
from p3dc.baselines.dc import calibrated_means
from p3dc.features import FeatureSet
from p3dc.method import l2_normalize
from p3dc.tasks import Tasks

Level = Literal["sample", "task"]

COINCIDE = 0.99
"""The cosine of s and t from which the two levels are said to coincide."""


@dataclass(frozen=True)
class LevelWeights:
    """The softmax of Eq. 6 at one level, averaged over samples."""

    n_priors: float  # how many base classes it may choose from
    largest: float  # its largest weight
    entropy: float  # in nats


@dataclass(frozen=True)
class CalibrationMeasures:
    """Measurements over the support samples of one-shot tasks.

    The centre of a class is the normalised mean of its normalised samples, the support sample left out. The points are
    "before" (the normalised sample), "sample" and "task" (α or β is 1), "p3dc" (selected α and β) and "dc".
    """

    weights: dict[Level, LevelWeights]
    agreement: float  # mean cosine of s and t
    cosines: dict[str, list[float]]  # by point: the mean cosine to the centre of the own class, for each task
    nearest: dict[str, float]  # by point: share of samples whose own centre is the nearest of the task
    away: dict[str, float]  # by point: share of samples that end farther from their centre than they were
    boundary: list[
        float
    ]  # for each task with samples whose own centre is not the nearest: their cosines, task − sample

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "CalibrationMeasures":
        """Build the measures from the JSON of :func:`dataclasses.asdict`."""
        weights = {level: LevelWeights(**each) for level, each in values["weights"].items()}
        return cls(**values | {"weights": weights})

    @property
    def coincide(self) -> bool:
        """Whether sample level and task level are nearly the same."""
        return self.agreement >= COINCIDE


def measure_calibration(
    features: FeatureSet, priors: Array, batches: Iterable[Tasks], point: tuple[float, float]
) -> CalibrationMeasures:
    """Measure what happens to the support samples of one-shot tasks at the paper's settings."""
    unit = l2_normalize(features.features.astype(np.float64))
    sums = np.stack([unit[features.labels == label].sum(axis=0) for label in np.unique(features.labels)])
    parts = [_measure(features.features, unit, sums, priors, tasks, point) for tasks in batches]
    own, right, weights, agreement = (
        {key: np.concatenate([part[i][key] for part in parts]) for key in parts[0][i]} for i in range(4)
    )
    changed = {key: values for key, values in own.items() if key != "before"}
    boundary = [
        float(np.mean((task - sample)[~inside]))
        for task, sample, inside in zip(own["task"], own["sample"], right["before"], strict=True)
        if not inside.all()
    ]
    return CalibrationMeasures(
        weights={level: LevelWeights(*map(float, weights[level].mean(axis=(0, 1)))) for level in ("sample", "task")},
        agreement=float(agreement["s and t"].mean()),
        cosines={key: values.mean(axis=1).tolist() for key, values in own.items()},
        nearest={key: float(values.mean()) for key, values in right.items()},
        away={key: float(np.mean(values < own["before"])) for key, values in changed.items()},
        boundary=boundary,
    )


def _measure(
    features: Array, unit: Array, sums: Array, priors: Array, tasks: Tasks, point: tuple[float, float]
) -> tuple[dict[str, Array], ...]:
    """Measure one batch: own cosines, whether they are the largest, weights, and the cosines of s and t."""
    rows = tasks.support[..., 0]
    support = features[rows].astype(np.float64)  # (T, N, D)
    transformed = method.tukey(support, 0.5)
    similarities = method.prior_similarities(transformed, priors)
    near = method.nearest_priors(similarities, 5)
    chosen = {"sample": near, "task": method.task_priors(near)}
    weights = {level: method.prior_weights(similarities, mask, 1.0) for level, mask in chosen.items()}
    ends = {level: method.pull(transformed, priors, each) for level, each in weights.items()}
    points = {
        "before": l2_normalize(support),
        "sample": l2_normalize(ends["sample"]),
        "task": l2_normalize(ends["task"]),
        "p3dc": method.unify(l2_normalize(support), ends["sample"], ends["task"], *point),
        "dc": l2_normalize(calibrated_means(transformed, priors, 2)[0]),
    }
    centres = sums[tasks.classes]
    others = l2_normalize(centres)
    alone = l2_normalize(centres - unit[rows])
    n_way = rows.shape[1]
    own, right = {}, {}
    for key, samples in points.items():
        own[key] = np.vecdot(samples, alone)
        cosines = samples @ others.mT
        cosines[:, np.arange(n_way), np.arange(n_way)] = own[key]
        right[key] = cosines.argmax(axis=-1) == np.arange(n_way)
    shares = {
        level: np.stack(
            [np.broadcast_to(chosen[level].sum(axis=-1), rows.shape), each.max(axis=-1), _entropy(each)], -1
        )
        for level, each in weights.items()
    }
    return own, right, shares, {"s and t": np.vecdot(points["sample"], points["task"])}


def _entropy(weights: Array) -> Array:
    return -np.sum(weights * np.log(np.where(weights > 0, weights, 1.0)), axis=-1)
