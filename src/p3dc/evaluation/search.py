"""Search of α, β, scale and M on validation classes, which are not the ones to be tested."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Mask, Progress
from p3dc._validation import check_count, has_negative
from p3dc.adaptive.settings import Settings, Space
from p3dc.classifier.estimator import P3DCClassifier
from p3dc.errors import InputError
from p3dc.evaluation.evaluate import as_seed, compare
from p3dc.evaluation.executors import Batch, Drawing, Executor, choose_executor, step_progress
from p3dc.evaluation.progress import reporting
from p3dc.evaluation.results import Difference, Values, mean_and_interval, percent
from p3dc.evaluation.signed import REASON
from p3dc.evaluation.tables import data_frame, html_table, plain
from p3dc.features import LabelledFeatures, as_feature_set
from p3dc.method import Attention
from p3dc.priors.prototypes import Priors, as_priors, geometry_warning
from p3dc.scoring.device_memory import Memory, open_device
from p3dc.scoring.task_scorer import TaskScorer, task_scorer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from p3dc.figures.heat_map import GridDisplay

COLUMNS = ("alpha", "beta", "scale", "n_nearest", "accuracy", "interval")
SHOWN = 10
"""How many of the best points a notebook shows."""
MOST_POINTS = 1_000_000


class GridPoint(NamedTuple):
    """One (α, β) with its accuracy, half the width of its 95 % interval, and the scale and M where they varied."""

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
        The value at each point, where several were tried.
    seed : int or None
        What the tasks were drawn with, where that is known.
    note : str
        Why the search was in another space than the paper's, where it was not asked for.
    """

    alpha: Values
    beta: Values
    accuracy: Values
    interval: Values
    n_tasks: int
    settings: dict[str, Any] = field(default_factory=dict)
    scale: Values | None = None
    n_nearest: npt.NDArray[np.int64] | None = None
    seed: int | None = None
    note: str = ""

    @property
    def best_params(self) -> dict[str, Any]:
        """The parameters of :class:`P3DCClassifier` at the best point."""
        best = self.best
        varied = {"scale": best.scale, "n_nearest": best.n_nearest}
        settings = self.settings | {name: value for name, value in varied.items() if value is not None}
        settings = {name: _as_list(value)[0] for name, value in settings.items()}
        return {"alpha": best.alpha, "beta": best.beta, "extrapolate": not _inside(best.alpha, best.beta), **settings}

    def best_classifier(self, priors: Priors | npt.ArrayLike, **parameters: Any) -> P3DCClassifier:
        """Return the classifier at the best point, not yet fitted.

        Parameters
        ----------
        priors : Priors
            Those of all base classes, where some were held out for the search.
        **parameters
            Other parameters of :class:`P3DCClassifier`, such as ``reject``.

        Examples
        --------
        >>> import numpy as np
        >>> from p3dc import Priors
        >>> from p3dc.evaluation.search import SearchResult, grid
        >>> alpha, beta = grid(step=0.5).T
        >>> result = SearchResult(alpha, beta, 0.6 + 0.1 * beta, np.full(6, 0.01), 100, {"space": "plain"})
        >>> result.best_classifier(Priors(np.eye(3))).get_params()["beta"]
        1.0
        """
        return P3DCClassifier(priors, **(self.best_params | parameters))

    @property
    def best(self) -> GridPoint:
        """The most accurate point; among equals, the one that calibrates least."""
        return self.ranked(1)[0]

    def ranked(self, n_points: int) -> list[GridPoint]:
        """List the best points, the most accurate first; among equals, the one that calibrates least."""
        pull = np.abs(self.alpha) + np.abs(self.beta)
        return [self.point(i) for i in np.lexsort((pull, -self.accuracy))[:n_points]]

    def point(self, i: int) -> GridPoint:
        """Return the i-th point of the grid."""
        alpha, beta, accuracy, interval = map(float, (self.alpha[i], self.beta[i], self.accuracy[i], self.interval[i]))
        scale = None if self.scale is None else float(self.scale[i])
        n_nearest = None if self.n_nearest is None else int(self.n_nearest[i])
        return GridPoint(alpha, beta, accuracy, interval, scale, n_nearest)

    @property
    def inside(self) -> Mask:
        """Whether each point lies in the triangle of the paper."""
        return np.asarray(_inside(self.alpha, self.beta))

    def where(self, kept: Mask) -> "SearchResult":
        """Keep some of the points."""
        columns: dict[str, Any] = {name: column[kept] for name, column in self._columns().items()}
        return replace(self, **columns)

    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        return {name: getattr(self, name) for name in COLUMNS if getattr(self, name) is not None}

    def plane(self) -> "SearchResult":
        """Keep the points with the scale and the M of the best."""
        best, kept = self.best, np.ones(len(self.alpha), dtype=bool)
        for column, value in ((self.scale, best.scale), (self.n_nearest, best.n_nearest)):
            if column is not None:
                kept &= column == value
        return self.where(kept)

    def __str__(self) -> str:
        return f"best of {len(self.alpha)} points: {self.best} (95 % CI, {self.n_tasks:,} tasks)"

    def __repr__(self) -> str:
        return f"SearchResult({self})"

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON: the best point, and the columns of all points under ``grid``."""
        facts = {name: getattr(self, name) for name in ("n_tasks", "seed", "settings", "note")}
        return plain({"best": self.best._asdict(), **facts, "grid": self._columns()})

    def to_pandas(self) -> "DataFrame":
        """Return a data frame with one row for each point of the grid. It needs pandas."""
        return data_frame(self._columns())

    def plot(self, ax: "Axes | None" = None, **mesh_options: Any) -> "GridDisplay":
        """Draw the heat map of accuracy over (α, β), on new axes if none are given."""
        from p3dc.figures.heat_map import GridDisplay

        return GridDisplay.from_search(self).plot(ax, **mesh_options)

    def table(self, n_best: int) -> list[dict[str, str]]:
        """Write the best points as rows of a table, cells by heading."""
        rows = []
        for point in self.ranked(n_best):
            numbers = {"α": point.alpha, "β": point.beta, "scale": point.scale, "M": point.n_nearest}
            cells = {heading: f"{number:.6g}" for heading, number in numbers.items() if number is not None}
            rows.append(cells | {"accuracy": percent(point.accuracy, point.interval)})
        return rows

    def _repr_html_(self) -> str:
        return html_table(self.table(SHOWN), [str(self), *([self.note] if self.note else [])])


def _inside(alpha: Any, beta: Any) -> Any:
    return (alpha >= 0) & (beta >= 0) & (alpha + beta <= 1 + 1e-9)


def grid(step: float = 0.1, margin: float = 0.0) -> Values:
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
    if ((1 + 3 * margin) / step) ** 2 / 2 > MOST_POINTS:
        raise InputError(f"step {step:g} gives a grid of more than {MOST_POINTS:,} points. Take a larger one.")
    parts = round(1 / step) if abs(round(1 / step) * step - 1) < 1e-9 else 1 / step
    low, high = int(margin * parts + 1e-9), int((1 + margin) * parts + 1e-9)
    points = [(i, j) for i in range(-low, high + low + 1) for j in range(-low, high - i + 1)]
    return np.array(points) / parts


def weight_grid(step: float = 0.1, *, margin: float = 0.0, prefix: str = "") -> list[dict[str, list[float]]]:
    """List the points (α, β) of the triangle as the ``param_grid`` of scikit-learn's ``GridSearchCV``.

    A grid of α times β would have points outside the triangle, which a classifier refuses.

    Parameters
    ----------
    step, margin : float
        As in :func:`p3dc.evaluation.search.grid`. Points of a margin need ``extrapolate=True``.
    prefix : str, default=""
        The name of the step in a ``Pipeline``, with two underscores: ``"p3dcclassifier__"``.

    Returns
    -------
    list of dict
        One for each point.

    Examples
    --------
    >>> from p3dc import weight_grid
    >>> weight_grid(step=1)
    [{'alpha': [0.0], 'beta': [0.0]}, {'alpha': [0.0], 'beta': [1.0]}, {'alpha': [1.0], 'beta': [0.0]}]
    """
    return [{f"{prefix}alpha": [alpha], f"{prefix}beta": [beta]} for alpha, beta in grid(step, margin).tolist()]


def search(
    priors: Priors,
    validation: LabelledFeatures,
    *,
    n_way: int = 5,
    n_shot: int = 1,
    n_query: int = 15,
    n_tasks: int = 2000,
    seed: int | None = 0,
    step: float = 0.1,
    margin: float = 0.0,
    n_nearest: int | Sequence[int] = 5,
    power: float = 0.5,
    scale: float | Sequence[float] | None = None,
    space: Space | None = None,
    attention: Attention = "raw",
    device: str | None = None,
    memory: Memory | None = None,
    n_jobs: int | None = None,
    progress: Progress | bool | None = None,
    executor: Executor | None = None,
) -> SearchResult:
    """Evaluate a whole grid of (α, β), and of scales and M, on tasks of validation classes.

    Choose on classes that are neither the base classes of the priors nor the ones to be tested:
    :func:`p3dc.evaluation.splits.check_disjoint` refuses sets with common classes, and
    :func:`p3dc.evaluation.splits.hold_out` takes validation classes out of the base classes.

    Parameters
    ----------
    priors : Priors
    validation : FeatureSet, (X, y) or mapping from class to rows
        The classes to choose on.
    n_way, n_shot, n_query, n_tasks : int
        As in :func:`sample_tasks`.
    step, margin : float
        As in :func:`p3dc.evaluation.search.grid`. A margin adds points outside the triangle; a classifier accepts
        those with ``extrapolate=True``.
    n_nearest, power, scale, attention
        As in :class:`P3DCClassifier`. Several values of ``n_nearest`` and ``scale`` may be given; all combinations are
        tried.
    space : {"plain", "whitened"}, optional
        By default the plain space, which is the paper. Where the power transform is not defined because features are
        negative, the whitened space is searched instead, with a warning.
    seed, device, memory, n_jobs, progress, executor
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
    validation, seed, note = as_feature_set(validation), as_seed(seed), ""
    if space is None:
        signed = power != 1 and has_negative(validation.features)
        space = "whitened" if signed else "plain"
        if signed:
            note = f"Searched in the whitened space and not in the paper's, because {REASON}."
            warnings.warn(note, stacklevel=2)
    if space == "whitened" and known.geometry is None:
        raise InputError(geometry_warning(known))
    scale = Settings(space=space).prior_scale if scale is None else scale
    scales, numbers = _as_list(scale), _as_list(n_nearest)
    variants = [Settings(0.0, 0.0, space, number, power, one, attention) for one, number in product(scales, numbers)]
    check_count("n_tasks", n_tasks, 1)
    check_count("n_shot", n_shot, 1)
    run, draw = choose_executor(executor, n_jobs, place), Drawing(n_way, n_shot, n_query, seed).on(validation)
    columns = []
    with reporting(progress, "grid") as told:
        for done, variant in enumerate(variants):
            scorer = partial(task_scorer, validation.features, known, variant, points, place)
            counts = run(draw, partial(_make_counter, scorer), n_tasks, step_progress(told, done, len(variants)))
            columns.append(mean_and_interval(reduce(np.add, counts), n_tasks))
    mean, interval = (np.concatenate(column) / (n_way * n_query) for column in zip(*columns, strict=True))
    settings = {"n_nearest": n_nearest, "power": power, "scale": scale, "space": space, "attention": attention}
    each_scale, each_number = (np.repeat(column, len(points)) for column in zip(*product(scales, numbers), strict=True))
    alpha, beta = np.tile(points, (len(variants), 1)).T
    return SearchResult(
        alpha,
        beta,
        mean,
        interval,
        n_tasks,
        settings,
        each_scale if len(scales) > 1 else None,
        each_number if len(numbers) > 1 else None,
        seed,
        note,
    )


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        listed = list(dict.fromkeys(value))
        if not listed:
            raise InputError("there are no values of n_nearest or scale to try. Give at least one.")
        return listed
    return [value]


def _make_counter(make_scorer: Callable[[], TaskScorer]) -> Callable[[Batch], npt.NDArray[np.int64]]:
    """Make the runner of a grid: the number of queries right at each point, summed over tasks, and squared, (2, G)."""
    scorer = make_scorer()

    def count(batch: Batch) -> npt.NDArray[np.int64]:
        right = scorer.correct(batch.tasks)
        return np.stack([right.sum(axis=0), (right**2).sum(axis=0)])

    return count


def gain_outside(
    result: SearchResult, priors: Priors, validation: LabelledFeatures, **drawing: Any
) -> Difference | None:
    """Compare the best point outside the triangle with the best inside, on fresh tasks.

    The best of many points is partly luck, which fresh tasks do not share. ``drawing`` has the options of
    :func:`search` that draw and run tasks; the next seed is used. Returns None where the search did not go outside.
    """
    if result.inside.all():
        return None
    places = {"inside": result.inside, "outside": ~result.inside}
    rivals = {name: result.where(kept).best_classifier(priors) for name, kept in places.items()}
    fresh = drawing | {"seed": drawing.get("seed", 0) + 1}
    return compare(rivals, validation, **fresh).difference("outside", "inside")
