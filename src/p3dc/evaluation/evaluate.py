"""Evaluation of classifiers on many few-shot tasks, one or several on the same tasks."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from p3dc._arrays import Progress
from p3dc._validation import check_count
from p3dc.errors import InputError
from p3dc.evaluation.executors import (
    BATCH,
    Batch,
    Drawing,
    Executor,
    PileQueries,
    Shots,
    choose_executor,
    run_serially,
)
from p3dc.evaluation.progress import reporting
from p3dc.evaluation.results import BatchResult, Comparison, TaskScores, left_out_lines
from p3dc.evaluation.runners import make_runner
from p3dc.evaluation.signed import REASON, refuse, undefined_classifiers
from p3dc.features import FeatureSet, LabelledFeatures, as_feature_set
from p3dc.scoring.device_memory import Device, Memory, open_device
from p3dc.tasks import PileBalance, Tasks


def evaluate(
    classifier: Any,
    features: LabelledFeatures,
    *,
    n_way: int = 5,
    n_shot: Shots = 1,
    n_query: int = 15,
    n_tasks: int = 2000,
    seed: int | None = 0,
    n_unknown: int = 0,
    n_pile: int = 0,
    pile_balance: PileBalance = "equal",
    pile_unknown: float = 0.0,
    pile_queries: PileQueries = "inside",
    pile_unknown_classes: int | None = None,
    device: str | None = None,
    memory: Memory | None = None,
    n_jobs: int | None = None,
    progress: Progress | bool | None = None,
    executor: Executor | None = None,
) -> TaskScores:
    """Evaluate a classifier on many few-shot tasks.

    Parameters
    ----------
    classifier : object with fit and predict
        A copy of it is fitted to the support of each task. A :class:`P3DCClassifier` takes a fast path, whose
        predictions are those of a fit in float64 without ``reject``; the baselines learn many tasks together.
    features : FeatureSet, (X, y) or mapping from class to rows
        The classes that tasks are drawn from.
    n_way, n_query, n_tasks : int
        As in :func:`sample_tasks`.
    n_shot : int, sequence of int or range, default=1
        Samples of each class; or one number for each of the ``n_way`` classes of a task; or a range, from which each
        class of each task draws its own. Unless all have the same number, tasks are learned one by one.
    seed : int or None, default=0
        As in :func:`sample_tasks`. None draws a new one, which the result has as ``seed``.
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
    n_jobs : int, optional
        Processes that tasks are run in, -1 for as many as there are cores. The results are the same for any number.
    progress : bool or callable, optional
        True shows a bar on a terminal or in a notebook. A function is called now and then with the number of tasks done
        and of all tasks.
    executor : callable, optional
        How tasks are run; by default in this process. :func:`p3dc.cluster.evaluation.run_on_ray` is another.

    Returns
    -------
    TaskScores
        With the calibration error (ECE) of any classifier that has ``predict_proba``, and with the AUROC where there
        are unknown queries. Unknowns are told by ``score_samples``, or else by the largest probability; baselines tell
        them by their largest score.

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
    piles = (n_pile, pile_balance, pile_unknown, pile_queries, pile_unknown_classes)
    drawing = Drawing(n_way, n_shot, n_query, as_seed(seed), n_unknown, *piles)
    where = (device, memory, n_jobs, progress, executor)
    return _evaluate_all({"": classifier}, as_feature_set(features), drawing, n_tasks, *where).scores[""]


def compare(
    classifiers: Mapping[str, Any] | Sequence[Any],
    features: LabelledFeatures,
    *,
    n_way: int = 5,
    n_shot: Shots = 1,
    n_query: int = 15,
    n_tasks: int = 2000,
    seed: int | None = 0,
    n_unknown: int = 0,
    n_pile: int = 0,
    pile_balance: PileBalance = "equal",
    pile_unknown: float = 0.0,
    pile_queries: PileQueries = "inside",
    pile_unknown_classes: int | None = None,
    device: str | None = None,
    memory: Memory | None = None,
    n_jobs: int | None = None,
    progress: Progress | bool | None = None,
    executor: Executor | None = None,
) -> Comparison:
    """Evaluate several classifiers on the same tasks.

    Where features have negative entries, classifiers that are not defined for them are left out with a warning:
    ``left_out`` of the result names them.

    Parameters
    ----------
    classifiers : mapping from name to classifier, or sequence of classifiers
        The members of a sequence are named after their classes.
    features, n_way, n_shot, n_query, n_tasks, seed, n_unknown, n_pile, pile_balance, pile_unknown, \
    pile_queries, pile_unknown_classes, device, memory, n_jobs, progress, executor
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
    features = as_feature_set(features)
    undefined = undefined_classifiers(named, features)
    left_out = dict.fromkeys(undefined, REASON)
    if len(undefined) == len(named):
        raise refuse(undefined)
    for line in left_out_lines(left_out):
        warnings.warn(line, stacklevel=2)
    piles = (n_pile, pile_balance, pile_unknown, pile_queries, pile_unknown_classes)
    drawing = Drawing(n_way, n_shot, n_query, as_seed(seed), n_unknown, *piles)
    defined = {name: classifier for name, classifier in named.items() if name not in left_out}
    where = (device, memory, n_jobs, progress, executor)
    found = _evaluate_all(defined, features, drawing, n_tasks, *where)
    return Comparison(found.scores, left_out)


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
    check_count("n_tasks", n_tasks, 1)
    batches = sampler.batches(n_tasks, BATCH)
    make_runners = partial(_make_runners, classifiers, features, None, False, False)
    results = list(run_serially(lambda _: Batch(next(batches)), make_runners, n_tasks, progress))
    return _join(classifiers, results)


def as_seed(seed: int | None) -> int:
    """Return the seed, or a new one where there is none."""
    return int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed


def _evaluate_all(
    classifiers: Mapping[str, Any],
    features: FeatureSet,
    drawing: Drawing,
    n_tasks: int,
    device: str | None,
    memory: Memory | None,
    n_jobs: int | None,
    progress: Progress | bool | None,
    executor: Executor | None,
) -> Comparison:
    draw = drawing.on(features)
    check_count("n_tasks", n_tasks, 1)
    place = open_device(device, memory)
    run = choose_executor(executor, n_jobs, place)
    make_runners = partial(_make_runners, classifiers, features, place, drawing.n_pile > 0, drawing.unequal)
    with reporting(progress, "tasks") as told:
        results = list(run(draw, make_runners, n_tasks, told))
    return _join(classifiers, results, drawing.seed)


def _join(
    classifiers: Mapping[str, Any], results: Sequence[Mapping[str, BatchResult]], seed: int | None = None
) -> Comparison:
    return Comparison({name: TaskScores.from_batches([batch[name] for batch in results], seed) for name in classifiers})


def _make_runners(
    classifiers: Mapping[str, Any],
    features: FeatureSet,
    device: Device | None,
    with_pile: bool,
    unequal_shots: bool,
) -> Callable[[Batch], dict[str, BatchResult]]:
    options = (device, with_pile, unequal_shots)
    runners = {name: make_runner(classifier, features, *options) for name, classifier in classifiers.items()}
    return lambda batch: {name: runner(batch) for name, runner in runners.items()}


def _by_class_name(classifiers: Sequence[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for classifier in classifiers:
        kind = type(classifier).__name__
        times = sum(type(other).__name__ == kind for other in named.values())
        named[f"{kind} ({times + 1})" if times else kind] = classifier
    return named
