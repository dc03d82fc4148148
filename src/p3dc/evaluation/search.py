"""Choosing α, β, scale and M on classes that are not the ones to be tested."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from p3dc._validation import check_count
from p3dc.adaptive.settings import Settings, Space
from p3dc.classifier.estimator import P3DCClassifier
from p3dc.classifier.leave_one_out import evenly_spaced
from p3dc.errors import InputError
from p3dc.evaluation.evaluate import (
    Difference,
    Drawn,
    Executor,
    Measure,
    Progress,
    compare,
    executor_for,
    part_of,
    percent,
)
from p3dc.features import FeatureSet
from p3dc.method import Attention
from p3dc.priors.prototypes import Priors, as_priors, geometry_warning
from p3dc.scoring.device_memory import Memory, open_device
from p3dc.scoring.task_scorer import TaskScorer, task_scorer
from p3dc.tasks import TaskSampler

STRAY = 0.01  # share of equal rows that may be duplicates
LEAST = 5  # classes to choose on: those of one task


class GridPoint(NamedTuple):
    """One (α, β) with its accuracy and half the width of its 95 % interval, and what else was varied."""

    alpha: float
    beta: float
    accuracy: float
    interval: float
    scale: float | None = None
    n_nearest: int | None = None

    def __str__(self) -> str:
        varied = "" if self.scale is None else f", scale = {self.scale:g}"
        varied += "" if self.n_nearest is None else f", M = {self.n_nearest}"
        return f"α = {self.alpha:g}, β = {self.beta:g}{varied}: {percent(self.accuracy, self.interval)} %"


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The accuracy at each point of a grid.

    Attributes
    ----------
    alpha, beta : arrays of shape (n_points,)
    accuracy : array of shape (n_points,)
        Mean accuracy over the tasks.
    interval : array of shape (n_points,)
        Half the width of its 95 % interval.
    n_tasks : int
    settings : dict
        The other parameters of the classifier that was searched.
    scale, n_nearest : arrays of shape (n_points,), or None
        Where several were tried, that of each point.
    """

    alpha: npt.NDArray[np.float64]
    beta: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64]
    interval: npt.NDArray[np.float64]
    n_tasks: int
    settings: dict[str, Any] = field(default_factory=dict)
    scale: npt.NDArray[np.float64] | None = None
    n_nearest: npt.NDArray[np.int64] | None = None

    @property
    def best(self) -> GridPoint:
        """The most accurate point; of equals, the one that calibrates least."""
        return self.ranked(1)[0]

    def ranked(self, n_points: int) -> list[GridPoint]:
        """List the best points, the most accurate first and of equals the one that calibrates least."""
        pull = np.abs(self.alpha) + np.abs(self.beta)
        return [self.point(i) for i in np.lexsort((pull, -self.accuracy))[:n_points]]

    def point(self, i: int) -> GridPoint:
        """Return the i-th point of the grid."""
        return GridPoint(
            float(self.alpha[i]),
            float(self.beta[i]),
            float(self.accuracy[i]),
            float(self.interval[i]),
            None if self.scale is None else float(self.scale[i]),
            None if self.n_nearest is None else int(self.n_nearest[i]),
        )

    @property
    def inside(self) -> npt.NDArray[np.bool_]:
        """Which points lie in the triangle of the paper."""
        return (self.alpha >= 0) & (self.beta >= 0) & (self.alpha + self.beta <= 1 + 1e-9)

    def where(self, kept: npt.NDArray[np.bool_]) -> "SearchResult":
        """Keep some of the points."""
        columns = {
            name: getattr(self, name) for name in ("alpha", "beta", "accuracy", "interval", "scale", "n_nearest")
        }
        left: dict[str, Any] = {name: column[kept] for name, column in columns.items() if column is not None}
        return replace(self, **left)

    def plane(self) -> "SearchResult":
        """Keep the points that differ from the best in α and β alone."""
        best = self.best
        kept = np.ones(len(self.alpha), dtype=bool)
        if self.scale is not None:
            kept &= self.scale == best.scale
        if self.n_nearest is not None:
            kept &= self.n_nearest == best.n_nearest
        return self.where(kept)

    def __str__(self) -> str:
        return f"best of {len(self.alpha)} points: {self.best} (95 % CI, {self.n_tasks:,} tasks)"


def grid(step: float = 0.1, margin: float = 0.0) -> npt.NDArray[np.float64]:
    """List the points (α, β) of the triangle, and of a margin around it.

    Parameters
    ----------
    step : float, default=0.1
        Distance of neighbours.
    margin : float, default=0.0
        How far below zero α, β and 1 - α - β may fall; 0 is the triangle of the paper.

    Returns
    -------
    array of shape (n_points, 2)

    Examples
    --------
    >>> from p3dc.evaluation.search import grid
    >>> grid(step=0.5).tolist()
    [[0.0, 0.0], [0.0, 0.5], [0.0, 1.0], [0.5, 0.0], [0.5, 0.5], [1.0, 0.0]]
    >>> len(grid()), len(grid(margin=0.3))
    (66, 210)
    """
    if not 0 < step <= 1:
        raise InputError(f"step is {step:g}. It must be more than 0 and at most 1.")
    if not 0 <= margin < float("inf"):
        raise InputError(f"margin is {margin:g}. It must be a finite number, 0 or more.")
    parts = round(1 / step) if abs(round(1 / step) * step - 1) < 1e-9 else 1 / step
    low, high = int(margin * parts + 1e-9), int((1 + margin) * parts + 1e-9)
    points = [(i, j) for i in range(-low, high + low + 1) for j in range(-low, high - i + 1)]
    return np.array(points) / parts


def search(
    priors: Priors,
    validation: FeatureSet,
    *,
    n_way: int = 5,
    n_shot: int = 1,
    n_query: int = 15,
    n_tasks: int = 2000,
    seed: int = 0,
    step: float = 0.1,
    margin: float = 0.0,
    n_nearest: int | Sequence[int] = 5,
    power: float = 0.5,
    scale: float | Sequence[float] | None = None,
    space: Space = "plain",
    attention: Attention = "raw",
    device: str | None = None,
    memory: Memory | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> SearchResult:
    """Measure a whole grid of (α, β), and of scales and M, on tasks of validation classes.

    Choose on classes that are neither the base classes of the priors nor the ones to be tested;
    :func:`check_disjoint` tells them apart, and :func:`hold_out` makes some out of base classes.

    Parameters
    ----------
    priors : Priors
    validation : FeatureSet
        The classes to choose on.
    n_way, n_shot, n_query, n_tasks, seed : int
        As in :func:`sample_tasks`.
    step, margin : float
        As in :func:`grid`. A margin asks for points outside the triangle; a classifier takes those with
        ``extrapolate=True``.
    n_nearest, power, scale, space, attention
        As in :class:`P3DCClassifier`; the space is that of the paper by default. Of ``n_nearest`` and ``scale`` several
        may be given; all combinations are tried.
    device, memory
        As in :func:`evaluate`.
    progress : callable, optional
        Called now and then with the number of tasks done and of all tasks.
    executor : callable, optional
        As in :func:`p3dc.evaluate`.

    Returns
    -------
    SearchResult

    Examples
    --------
    >>> import numpy as np
    >>> from p3dc import FeatureSet, Priors, search
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(np.arange(6), 20)
    >>> validation = FeatureSet(np.eye(6)[labels] + rng.uniform(size=(120, 6)), labels)
    >>> result = search(Priors(np.eye(6) + 0.5), validation, n_tasks=50)
    >>> result.accuracy.shape
    (66,)
    >>> print(result)
    best of 66 points: α = 0, β = 0.4: 86.53 ± 1.61 % (95 % CI, 50 tasks)
    """
    known = as_priors(priors)
    if known is None:
        raise InputError("there are no priors, so there is nothing to search. Give the priors of base classes.")
    place, points = open_device(device, memory), grid(step, margin)
    scales, numbers = _as_list(scale), _as_list(n_nearest)
    for some_scale, number in product(scales, numbers):
        Settings(0.0, 0.0, space, number, power, some_scale, attention)
    if space == "whitened" and known.geometry is None:
        raise InputError(geometry_warning(known))
    check_count("n_tasks", n_tasks, 1)
    sampler = TaskSampler(
        validation.labels, n_way=n_way, n_shot=n_shot, n_query=n_query, seed=seed, class_names=validation.class_names
    )
    columns = []
    variants = list(product(scales, numbers))
    for done, (some_scale, number) in enumerate(variants):
        chosen = Settings(0.0, 0.0, space, number, power, some_scale, attention, extrapolate=True)
        scorer = partial(task_scorer, validation.features, known, chosen, points, place)
        prepare = partial(_counter, scorer, sampler)
        parts = (executor or executor_for(place))(prepare, n_tasks, part_of(progress, done, len(variants)))
        columns.append(_mean_and_interval(parts, n_tasks))
    mean, interval = (np.concatenate(column) / (n_way * n_query) for column in zip(*columns, strict=True))
    each = np.tile(points, (len(variants), 1))
    return SearchResult(
        each[:, 0],
        each[:, 1],
        mean,
        interval,
        n_tasks,
        {"n_nearest": n_nearest, "power": power, "scale": scale, "space": space, "attention": attention},
        np.repeat([pair[0] for pair in variants], len(points)) if len(scales) > 1 else None,
        np.repeat([pair[1] for pair in variants], len(points)) if len(numbers) > 1 else None,
    )


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        listed = list(dict.fromkeys(value))
        if not listed:
            raise InputError("there are no values of n_nearest or scale to try. Give at least one.")
        return listed
    return [value]


def _counter(make_scorer: Callable[[], TaskScorer], sampler: TaskSampler) -> Measure[npt.NDArray[np.int64]]:
    """Prepare to count the queries right at each point: their sum over tasks and the sum of their squares, (2, G)."""
    scorer = make_scorer()

    def count(drawn: Drawn) -> npt.NDArray[np.int64]:
        right = scorer.correct(drawn[0])
        return np.stack([right.sum(axis=0), (right**2).sum(axis=0)])

    return Measure(lambda numbers: (sampler.draw(len(numbers), numbers.start), None), count)


def _mean_and_interval(
    counts: Iterable[npt.NDArray[np.int64]], n_tasks: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Take the mean over tasks of the queries right at each point, and half its interval."""
    total, squares = reduce(np.add, counts)
    mean = total / n_tasks
    spread = np.sqrt(np.maximum(squares - n_tasks * mean**2, 0) / max(n_tasks - 1, 1) / n_tasks)
    return mean, 1.96 * spread if n_tasks > 1 else np.full(len(mean), np.nan)


def gain_outside(result: SearchResult, priors: Priors, validation: FeatureSet, **drawing: Any) -> Difference | None:
    """Compare the best point outside the triangle with the best inside, on fresh tasks.

    The best of many points is partly luck; on tasks that it was not chosen on, luck is gone.

    Parameters
    ----------
    result : SearchResult
    priors, validation
        What was searched.
    **drawing
        How tasks are drawn, and where they are measured, as in :func:`search`; the next seed is used.

    Returns
    -------
    Difference or None
        None where the search did not go outside.
    """
    if result.inside.all():
        return None
    rivals = {}
    for place, kept in (("inside", result.inside), ("outside", ~result.inside)):
        best = result.where(kept).best
        varied = {"scale": best.scale, "n_nearest": best.n_nearest}
        settings = result.settings | {name: value for name, value in varied.items() if value is not None}
        settings = {name: _as_list(value)[0] for name, value in settings.items()}
        rivals[place] = P3DCClassifier(priors, alpha=best.alpha, beta=best.beta, extrapolate=True, **settings)
    fresh = drawing | {"seed": drawing.get("seed", 0) + 1}
    return compare(rivals, validation, **fresh).difference("outside", "inside")


def hold_out(base: FeatureSet) -> tuple[FeatureSet, FeatureSet]:
    """Split base classes into those that stay and a quarter, but five at least, that stands in for validation."""
    there = np.unique(base.labels)
    n_classes = len(there)
    if n_classes < 2 * LEAST:
        raise InputError(
            f"there are no validation classes, and {n_classes} base classes are too few to hold some out. "
            "Add validation features."
        )
    aside = np.isin(base.labels, there[evenly_spaced(n_classes, max(LEAST, n_classes // 4))])
    return tuple(  # type: ignore[return-value]
        FeatureSet(base.features[rows], [base.class_names[label] for label in base.labels[rows]])
        for rows in (~aside, aside)
    )


def check_disjoint(**sets: FeatureSet | Priors) -> None:
    """Refuse sets that share classes or rows: weights chosen on what is tested say nothing about what is new.

    Names that are only numbers do not identify a class, so for those the rows decide. A few equal rows are let pass:
    large data sets have duplicates.

    Examples
    --------
    >>> from p3dc import FeatureSet
    >>> from p3dc.evaluation.search import check_disjoint
    >>> one = FeatureSet([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
    >>> two = FeatureSet([[1.0, 1.0], [0.0, 2.0]], ["wren", "robin"])
    >>> check_disjoint(validation=one, novel=two)
    Traceback (most recent call last):
    ...
    p3dc.errors.InputError: validation and novel share 1 class: wren. Give sets without common classes.
    """
    rows = {name: _rows(classes) for name, classes in sets.items()}
    for one, two in combinations(sets, 2):
        common = sorted(_names(sets[one]) & _names(sets[two]))
        if common:
            listed = ", ".join(common[:5]) + (", …" if len(common) > 5 else "")
            kind = "class" if len(common) == 1 else "classes"
            raise InputError(f"{one} and {two} share {len(common)} {kind}: {listed}. Give sets without common classes.")
        shared = len(rows[one] & rows[two])
        if shared > STRAY * min(len(rows[one]), len(rows[two])):
            raise InputError(f"{one} and {two} share {shared} identical rows. Give sets without common classes.")


def _names(classes: FeatureSet | Priors) -> set[str]:
    return {name for name in classes.class_names if not _is_numeral(name)}


def _is_numeral(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _rows(classes: FeatureSet | Priors) -> set[int]:
    if isinstance(classes, Priors):
        return set()
    return {hash(row.astype(np.float32).tobytes()) for row in classes.features}
