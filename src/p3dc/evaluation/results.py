"""Results: accuracy and confidence over tasks, 95 % intervals, paired differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from p3dc.confidence.metrics import Reliability
from p3dc.evaluation.tables import data_frame, html_table, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from p3dc.figures.scores import AccuracyDisplay

Counts = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

LOSS = 0.05
"""How much worse a classifier is in a task that it has lost."""


def half_width(values: Values) -> float:
    """Compute half the width of the 95 % interval of a mean; NaN for a single value."""
    if len(values) < 2:
        return float("nan")
    return float(1.96 * np.std(values, ddof=1) / np.sqrt(len(values)))


def mean_and_interval(sums: Counts, n_tasks: int) -> tuple[Values, Values]:
    """Compute means over tasks and half the widths of their intervals from sums and sums of squares, (2, G)."""
    total, squares = sums
    mean = total / n_tasks
    error = np.sqrt(np.maximum(squares - n_tasks * mean**2, 0) / max(n_tasks - 1, 1) / n_tasks)
    return mean, 1.96 * error if n_tasks > 1 else np.full(len(mean), np.nan)


def percent(mean: float, interval: float) -> str:
    """Format a mean and half the width of its interval in percent."""
    return f"{100 * mean:.2f} ± {100 * interval:.2f}"


def points(mean: float, interval: float) -> str:
    """Format a difference and half the width of its interval in percentage points, with its sign."""
    return f"{100 * mean:+.2f} ± {100 * interval:.2f}"


@dataclass(frozen=True, eq=False)
class BatchResult:
    """The results of one classifier on a batch of tasks.

    Attributes
    ----------
    accuracy : array of shape (T,)
    auroc : array of shape (T,) or None
        Where there are scores, and queries of classes outside each task.
    reliability : Reliability or None
        Where there are probabilities.
    """

    accuracy: Values
    auroc: Values | None = None
    reliability: Reliability | None = None


@dataclass(frozen=True, eq=False)
class TaskScores:
    """The accuracy of each task, and the quality of the confidence.

    Attributes
    ----------
    accuracy : array of shape (n_tasks,)
        Fraction of queries that each task gets right.
    calibration_error : float or None
        Expected calibration error of the probabilities over all queries, where the classifier has probabilities.
    auroc : array of shape (n_tasks,) or None
        Area under the ROC curve that separates known queries from those of other classes, where there were any.
    seed : int or None
        What the tasks were drawn with, where that is known.

    Examples
    --------
    >>> import numpy as np
    >>> from p3dc.evaluation.results import TaskScores
    >>> print(TaskScores(np.array([0.6, 0.8, 0.7, 0.7])))
    70.00 ± 8.00 % (95 % CI, 4 tasks)
    """

    accuracy: Values
    calibration_error: float | None = None
    auroc: Values | None = None
    seed: int | None = None

    @classmethod
    def from_batches(cls, batches: Sequence[BatchResult], seed: int | None = None) -> "TaskScores":
        """Join the results of batches in their order."""
        auroc = [batch.auroc for batch in batches if batch.auroc is not None]
        reliability = [batch.reliability for batch in batches if batch.reliability is not None]
        total = Reliability()
        for part in reliability:
            total.join(part)
        return cls(
            np.concatenate([batch.accuracy for batch in batches]),
            total.error if reliability else None,
            np.concatenate(auroc) if auroc else None,
            seed,
        )

    @property
    def mean(self) -> float:
        """Mean accuracy, from 0 to 1."""
        return float(self.accuracy.mean())

    @property
    def interval(self) -> float:
        """Half the width of the 95 % interval of the mean."""
        return half_width(self.accuracy)

    def __str__(self) -> str:
        text = f"{percent(self.mean, self.interval)} % (95 % CI, {len(self.accuracy):,} tasks)"
        if self.calibration_error is not None:
            text += f", calibration error {self.calibration_error:.3f}"
        return text if self.auroc is None else f"{text}, AUROC of unknowns {self.auroc.mean():.3f}"

    def __repr__(self) -> str:
        return f"TaskScores({percent(self.mean, self.interval)} %, {len(self.accuracy):,} tasks)"

    def summary(self) -> dict[str, Any]:
        """Return the available numbers over all tasks, for JSON."""
        found: dict[str, Any] = {"mean": self.mean, "interval": self.interval}
        if self.calibration_error is not None:
            found["calibration_error"] = self.calibration_error
        if self.auroc is not None:
            found["auroc"] = {"mean": float(self.auroc.mean()), "interval": half_width(self.auroc)}
        return plain(found)

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON: the numbers over all tasks, and those of each task under ``tasks``."""
        counts = {"n_tasks": len(self.accuracy), "seed": self.seed}
        return plain(self.summary() | counts | {"tasks": self._columns()})

    def to_pandas(self) -> "DataFrame":
        """Return a data frame with one row for each task. It needs pandas."""
        return data_frame(self._columns()).rename_axis("task")

    def _columns(self) -> dict[str, Values]:
        return {"accuracy": self.accuracy} | ({} if self.auroc is None else {"auroc": self.auroc})

    def plot(self, ax: "Axes | None" = None, **box_options: Any) -> "AccuracyDisplay":
        """Draw how the accuracies of the tasks are distributed, on new axes if none are given."""
        return Comparison({"": self}).plot(ax, **box_options)

    def _repr_html_(self) -> str:
        return Comparison({"": self})._repr_html_()


def paired_difference(one: TaskScores, two: TaskScores) -> tuple[float, float]:
    """Compute the mean gain of one over the other on the first tasks that both have, with half its interval."""
    n_tasks = min(len(one.accuracy), len(two.accuracy))
    gain = one.accuracy[:n_tasks] - two.accuracy[:n_tasks]
    return float(gain.mean()), half_width(gain)


@dataclass(frozen=True)
class Difference:
    """How much more accurate one classifier is than another on the same tasks.

    Attributes
    ----------
    name, reference : str
        The two classifiers.
    mean : float
        Mean over the tasks of the accuracy of the first minus that of the second.
    interval : float
        Half the width of the 95 % interval of the mean.
    lost : float
        Share of the tasks in which the first is worse by more than five points.
    """

    name: str
    reference: str
    mean: float
    interval: float
    lost: float = float("nan")

    def __str__(self) -> str:
        return f"{self.name} − {self.reference}: {points(self.mean, self.interval)} points (95 % CI, paired)"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several classifiers on the same tasks.

    Attributes
    ----------
    scores : dict from name to TaskScores
    left_out : dict from name to str
        The classifiers that are not defined for these features, and why.
    """

    scores: dict[str, TaskScores]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def difference(self, name: str, reference: str) -> Difference:
        """Compare two of the classifiers task by task."""
        one, two = self.scores[name], self.scores[reference]
        lost = float(np.mean(two.accuracy - one.accuracy > LOSS + 1e-9))  # five points are not more than five
        return Difference(name, reference, *paired_difference(one, two), lost)

    @property
    def differences(self) -> list[Difference]:
        """The paired differences between every other classifier and the first."""
        reference, *others = self.scores
        return [self.difference(name, reference) for name in others]

    def __str__(self) -> str:
        width = max(map(len, self.scores))
        lines = [f"{name:<{width}}  {scores}" for name, scores in self.scores.items()]
        differences = [str(difference) for difference in self.differences]
        return "\n".join(lines + differences + left_out_lines(self.left_out))

    def __repr__(self) -> str:
        n_tasks = len(next(iter(self.scores.values())).accuracy)
        return f"Comparison({', '.join(self.scores)}; {n_tasks:,} tasks)"

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON: each classifier, its difference from the first, and what was left out."""
        differences = [
            {name: getattr(found, name) for name in ("name", "reference", "mean", "interval", "lost")}
            for found in self.differences
        ]
        scores = {name: scores.to_dict() for name, scores in self.scores.items()}
        return plain({"scores": scores, "differences": differences, "left_out": dict(self.left_out)})

    def to_pandas(self) -> "DataFrame":
        """Return a data frame with one row for each classifier. It needs pandas."""
        rows = []
        for name, scores in self.scores.items():
            auroc = None if scores.auroc is None else float(scores.auroc.mean())
            row: dict[str, Any] = {"accuracy": scores.mean, "interval": scores.interval}
            row |= {"calibration_error": scores.calibration_error, "auroc": auroc}
            gain = self.difference(name, next(iter(self.scores)))
            rows.append({"name": name, **row, "difference": gain.mean, "difference_interval": gain.interval})
        columns = {key: [row[key] for row in rows] for key in rows[0]}
        return data_frame(columns).set_index("name").dropna(axis="columns", how="all")

    def plot(self, ax: "Axes | None" = None, **box_options: Any) -> "AccuracyDisplay":
        """Draw how the accuracies of the tasks are distributed, on new axes if none are given."""
        from p3dc.figures.scores import AccuracyDisplay

        accuracies = {name: scores.accuracy for name, scores in self.scores.items()}
        intervals = {name: scores.interval for name, scores in self.scores.items()}
        return AccuracyDisplay(accuracies, intervals).plot(ax, **box_options)

    def _repr_html_(self) -> str:
        first = next(iter(self.scores))
        rows = []
        for name, scores in self.scores.items():
            gain = self.difference(name, first)
            row = {"": name, "accuracy (%)": percent(scores.mean, scores.interval)}
            if len(self.scores) > 1:
                row[f"gain over {first}"] = "" if name == first else points(gain.mean, gain.interval)
            if scores.calibration_error is not None:
                row["ECE"] = f"{scores.calibration_error:.3f}"
            if scores.auroc is not None:
                row["AUROC"] = f"{scores.auroc.mean():.3f}"
            rows.append(row)
        n_tasks = len(self.scores[first].accuracy)
        notes = [f"{n_tasks:,} tasks, 95 % intervals", *left_out_lines(self.left_out)]
        return html_table(rows, notes)


def left_out_lines(left_out: Mapping[str, str]) -> list[str]:
    """Write one sentence on classifiers that were left out, if there are any."""
    names = {reason: [name for name, why in left_out.items() if why == reason] for reason in left_out.values()}
    return [f"Left out: {', '.join(listed)}, because {reason}." for reason, listed in names.items()]
