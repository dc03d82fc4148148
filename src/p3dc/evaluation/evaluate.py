"""Evaluation of classifiers on many few-shot tasks, one or several on the same tasks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from p3dc._arrays import Progress
from p3dc._validation import check_count
from p3dc.errors import InputError
from p3dc.evaluation.executors import BATCH, Batch, Draw, Drawing, Executor, PileQueries, default_executor
from p3dc.evaluation.results import BatchResult, Comparison, TaskScores
from p3dc.evaluation.runners import make_runner
from p3dc.features import FeatureSet
from p3dc.scoring.device_memory import Device, Memory, open_device
from p3dc.tasks import PileBalance, Tasks


def evaluate(
    classifier: Any,
    features: FeatureSet,
    *,
    n_way: int = 5,
    n_shot: int = 1,
    n_query: int = 15,
    n_tasks: int = 2000,
    seed: int = 0,
    n_unknown: int = 0,
    n_pile: int = 0,
    pile_balance: PileBalance = "equal",
    pile_unknown: float = 0.0,
    pile_queries: PileQueries = "inside",
    pile_unknown_classes: int | None = None,
    device: str | None = None,
    memory: Memory | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> TaskScores:
    """Evaluate a classifier on many few-shot tasks.

    Parameters
    ----------
    classifier : object with fit and predict
        A copy of it is fitted to the support of each task. A :class:`P3DCClassifier` takes a fast path, whose
        predictions are those of a fit in float64 without ``reject``; the baselines learn many tasks together.
    features : FeatureSet
        The classes that tasks are drawn from.
    n_way, n_shot, n_query, n_tasks, seed : int
        As in :func:`sample_tasks`.
    n_unknown : int, default=0
        Queries of classes outside each task, to measure how well they are detected (open set).
    n_pile : int, default=0
        Unlabelled photos of each task, none of them in its support or queries. A classifier whose ``fit`` takes
        ``unlabelled`` learns from them, unless it is wrapped in :class:`p3dc.evaluation.runners.WithoutPile`.
    pile_balance : {"equal", "one"} or float, default="equal"
        How the pile spreads over the classes of its task: equally, all in one class, or by a Dirichlet distribution of
        this concentration.
    pile_unknown : float, default=0.0
        Share of the pile that is of classes outside the task.
    pile_queries : {"inside", "outside"}, default="inside"
        What is classified: the photos of the pile, unknown ones among them, or the queries, which are not in the pile.
        A transductive baseline sees only what it classifies.
    pile_unknown_classes : int, optional
        How many classes the unknown photos of a pile are of; by default any of those outside the task.
    device : str, optional
        Where a :class:`P3DCClassifier` runs: "cuda", "cuda:1" or "cpu" with torch, None with NumPy. The predictions
        are the same.
    memory : float or str, optional
        How much of the device's memory may be used: bytes, a share of what is free, or text such as "2GB". By default
        half of what is free.
    progress : callable, optional
        Called now and then with the number of tasks done and of all tasks.
    executor : callable, optional
        How tasks are run; by default in this process. :func:`p3dc.cluster.evaluation.run_on_ray` is another.

    Returns
    -------
    TaskScores

    Examples
    --------
    >>> import numpy as np
    >>> from p3dc import FeatureSet, P3DCClassifier, evaluate
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(np.arange(6), 20)
    >>> features = FeatureSet(np.eye(6)[labels] + rng.uniform(size=(120, 6)), labels)
    >>> print(evaluate(P3DCClassifier(), features, n_tasks=100))
    86.04 ± 1.17 % (95 % CI, 100 tasks), calibration error 0.025
    """
    drawing = Drawing(
        n_way, n_shot, n_query, seed, n_unknown, n_pile, pile_balance, pile_unknown, pile_queries, pile_unknown_classes
    )
    where = (device, memory, progress, executor)
    return _compare(drawing.on(features), {"": classifier}, features, n_tasks, n_pile > 0, *where).scores[""]


def compare(
    classifiers: Mapping[str, Any] | Sequence[Any],
    features: FeatureSet,
    *,
    n_way: int = 5,
    n_shot: int = 1,
    n_query: int = 15,
    n_tasks: int = 2000,
    seed: int = 0,
    n_unknown: int = 0,
    n_pile: int = 0,
    pile_balance: PileBalance = "equal",
    pile_unknown: float = 0.0,
    pile_queries: PileQueries = "inside",
    pile_unknown_classes: int | None = None,
    device: str | None = None,
    memory: Memory | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Comparison:
    """Evaluate several classifiers on the same tasks.

    Parameters
    ----------
    classifiers : mapping from name to classifier, or sequence of classifiers
        The members of a sequence are named after their classes.
    features, n_way, n_shot, n_query, n_tasks, seed, n_unknown, n_pile, pile_balance, pile_unknown, \
    pile_queries, pile_unknown_classes, device, memory, progress, executor
        As in :func:`evaluate`.

    Returns
    -------
    Comparison
        The scores of each and their paired differences, which have narrower intervals than the scores.

    Examples
    --------
    >>> import numpy as np
    >>> from p3dc import FeatureSet, P3DCClassifier, compare
    >>> from p3dc.baselines import L2N, NN
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(np.arange(6), 20)
    >>> features = FeatureSet(np.eye(6)[labels] + rng.uniform(size=(120, 6)), labels)
    >>> print(compare([NN(), L2N()], features, n_tasks=100))
    NN   62.52 ± 2.68 % (95 % CI, 100 tasks)
    L2N  86.04 ± 1.17 % (95 % CI, 100 tasks)
    L2N − NN: +23.52 ± 2.74 points (95 % CI, paired)
    """
    named = classifiers if isinstance(classifiers, Mapping) else _by_class_name(classifiers)
    if not named:
        raise InputError("there are no classifiers to compare. Give at least one.")
    drawing = Drawing(
        n_way, n_shot, n_query, seed, n_unknown, n_pile, pile_balance, pile_unknown, pile_queries, pile_unknown_classes
    )
    where = (device, memory, progress, executor)
    return _compare(drawing.on(features), named, features, n_tasks, n_pile > 0, *where)


class Sampler(Protocol):
    """A source of tasks that are drawn in order."""

    def batches(self, n_tasks: int, size: int = ...) -> Iterator[Tasks]:
        """Draw the first tasks, some at a time."""


def compare_on(
    sampler: Sampler,
    classifiers: Mapping[str, Any],
    features: FeatureSet,
    *,
    n_tasks: int,
    progress: Progress | None = None,
) -> Comparison:
    """Evaluate several classifiers on the first tasks of a sampler."""
    batches = sampler.batches(n_tasks, BATCH)
    return _compare(lambda _: Batch(next(batches)), classifiers, features, n_tasks, progress=progress)


def _compare(
    draw: Draw,
    classifiers: Mapping[str, Any],
    features: FeatureSet,
    n_tasks: int,
    with_pile: bool = False,
    device: str | None = None,
    memory: Memory | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Comparison:
    check_count("n_tasks", n_tasks, 1)
    place = open_device(device, memory)
    run = executor or default_executor(place)
    results = list(run(draw, partial(_make_runners, classifiers, features, place, with_pile), n_tasks, progress))
    return Comparison({name: TaskScores.from_batches([batch[name] for batch in results]) for name in classifiers})


def _make_runners(
    classifiers: Mapping[str, Any], features: FeatureSet, device: Device | None, with_pile: bool
) -> Callable[[Batch], dict[str, BatchResult]]:
    runners = {name: make_runner(classifier, features, device, with_pile) for name, classifier in classifiers.items()}
    return lambda batch: {name: runner(batch) for name, runner in runners.items()}


def _by_class_name(classifiers: Sequence[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for classifier in classifiers:
        kind = type(classifier).__name__
        times = sum(type(other).__name__ == kind for other in named.values())
        named[f"{kind} ({times + 1})" if times else kind] = classifier
    return named
