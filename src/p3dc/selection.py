"""Choosing α and β on classes that are not the ones to be tested."""

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from p3dc.engine import TaskScorer
from p3dc.errors import InputError
from p3dc.evaluation import Progress, percent
from p3dc.features import FeatureSet
from p3dc.method import Attention
from p3dc.priors import Priors, as_priors
from p3dc.tasks import TaskSampler

STRAY = 0.01  # share of equal rows that may be duplicates


class GridPoint(NamedTuple):
    """One (α, β) with its accuracy and half the width of its 95 % interval."""

    alpha: float
    beta: float
    accuracy: float
    interval: float

    def __str__(self) -> str:
        return f"α = {self.alpha:g}, β = {self.beta:g}: {percent(self.accuracy, self.interval)} %"


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
    """

    alpha: npt.NDArray[np.float64]
    beta: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64]
    interval: npt.NDArray[np.float64]
    n_tasks: int
    settings: dict[str, Any] = field(default_factory=dict)

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
        return GridPoint(*(float(column[i]) for column in (self.alpha, self.beta, self.accuracy, self.interval)))

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
    >>> from p3dc.selection import grid
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
    n_nearest: int = 5,
    power: float = 0.5,
    scale: float = 1.0,
    attention: Attention = "raw",
    progress: Progress | None = None,
) -> SearchResult:
    """Measure a whole grid of (α, β) on tasks of validation classes.

    Choose on classes that are neither the base classes of the priors nor the ones to be tested;
    :func:`check_disjoint` tells them apart.

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
    n_nearest, power, scale, attention
        As in :class:`P3DCClassifier`.
    progress : callable, optional
        Called now and then with the number of tasks done and of all tasks.

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
    points = grid(step, margin)
    settings: dict[str, Any] = {"n_nearest": n_nearest, "power": power, "scale": scale, "attention": attention}
    scorer = TaskScorer(validation.features, known.prototypes, points[:, 0], points[:, 1], **settings)
    sampler = TaskSampler(
        validation.labels, n_way=n_way, n_shot=n_shot, n_query=n_query, seed=seed, class_names=validation.class_names
    )
    total = np.zeros(len(points), dtype=np.int64)
    squares = np.zeros(len(points), dtype=np.int64)
    done = 0
    for tasks in sampler.batches(n_tasks):
        right = scorer.correct(tasks)
        total += right.sum(axis=0)
        squares += (right**2).sum(axis=0)
        done += len(tasks)
        if progress:
            progress(done, n_tasks)
    mean = total / n_tasks
    spread = np.sqrt(np.maximum(squares - n_tasks * mean**2, 0) / max(n_tasks - 1, 1) / n_tasks)
    interval = 1.96 * spread if n_tasks > 1 else np.full(len(points), np.nan)
    queries = n_way * n_query
    return SearchResult(points[:, 0], points[:, 1], mean / queries, interval / queries, n_tasks, settings)


def check_disjoint(**sets: FeatureSet | Priors) -> None:
    """Refuse sets that share classes or rows: weights chosen on what is tested say nothing about what is new.

    Names that are only numbers do not identify a class, so for those the rows decide. A few equal rows are let pass:
    large data sets have duplicates.

    Examples
    --------
    >>> from p3dc import FeatureSet
    >>> from p3dc.selection import check_disjoint
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
