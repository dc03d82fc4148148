"""Accuracy and confidence over many tasks, with intervals, and paired comparison."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Rows
from p3dc._validation import check_count
from p3dc.confidence.metrics import Reliability, area_under_roc
from p3dc.errors import InputError
from p3dc.evaluation.runners import Judge, Verdict, judge
from p3dc.features import FeatureSet
from p3dc.scoring.device_memory import Device, Memory, open_device
from p3dc.tasks import BLOCK, Tasks, TaskSampler

Progress = Callable[[int, int], None]
"""Called with the number of tasks done and the number of all."""

Part = TypeVar("Part")
Drawn = tuple[Tasks, Rows | None]
"""Tasks, and rows of other classes for each of them."""

BATCH = 100
"""How many tasks are measured together, so that memory does not grow with their number."""


@dataclass(frozen=True)
class Measure(Generic[Part]):
    """From the numbers of some tasks to what they come to, in two steps: drawing and measuring."""

    draw: Callable[[range], Drawn]
    measure: Callable[[Drawn], Part]

    def __call__(self, numbers: range) -> Part:
        """Take both steps."""
        return self.measure(self.draw(numbers))


class Executor(Protocol):
    """A way to measure tasks, here or elsewhere."""

    def __call__(
        self, prepare: Callable[[], Measure[Part]], n_tasks: int, progress: Progress | None = None
    ) -> Iterator[Part]:
        """Prepare once for each process, and give what the tasks come to, a batch at a time and in order."""


def batches_of(numbers: range, size: int = BATCH) -> Iterator[range]:
    """Cut the numbers of tasks into batches."""
    return (numbers[start : start + size] for start in range(0, len(numbers), size))


def run_serially(
    prepare: Callable[[], Measure[Part]], n_tasks: int, progress: Progress | None = None
) -> Iterator[Part]:
    """Measure tasks in this process, one batch after the other."""
    measure = prepare()
    for numbers in batches_of(range(n_tasks)):
        yield measure(numbers)
        if progress:
            progress(numbers.stop, n_tasks)


def run_prefetching(
    prepare: Callable[[], Measure[Part]], n_tasks: int, progress: Progress | None = None
) -> Iterator[Part]:
    """Draw tasks in a thread while those before them are measured, in batches that are large enough for a device."""
    work = prepare()
    batches = list(batches_of(range(n_tasks), BLOCK))
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(work.draw, batches[0])
        for numbers, following in zip_longest(batches, batches[1:]):
            drawn = coming.result()
            if following is not None:
                coming = thread.submit(work.draw, following)
            yield work.measure(drawn)
            if progress:
                progress(numbers.stop, n_tasks)


def executor_for(device: Device | None) -> Executor:
    """Say how tasks are measured on a device, or without one."""
    return run_serially if device is None else run_prefetching


def part_of(progress: Progress | None, step: int, n_steps: int) -> Progress | None:
    """Make one of several steps of equal length out of a progress."""
    if progress is None:
        return None
    return lambda done, total: progress(step * total + done, n_steps * total)


def half_width(values: npt.NDArray[np.float64]) -> float:
    """Half the width of the 95 % interval of a mean; NaN of a single value."""
    if len(values) < 2:
        return float("nan")
    return float(1.96 * np.std(values, ddof=1) / np.sqrt(len(values)))


def percent(mean: float, interval: float) -> str:
    """Write a mean and half the width of its interval in percent."""
    return f"{100 * mean:.2f} ± {100 * interval:.2f}"


@dataclass(frozen=True, eq=False)
class TaskScores:
    """The accuracy of each task, and what is known of the confidence.

    Attributes
    ----------
    accuracy : array of shape (n_tasks,)
        Fraction of queries that each task gets right.
    calibration_error : float or None
        Expected calibration error of the probabilities over all queries, where the classifier has any.
    auroc : array of shape (n_tasks,) or None
        Area under the ROC by which known queries are told from those of other classes, where there were any.

    Examples
    --------
    >>> import numpy as np
    >>> from p3dc.evaluation.evaluate import TaskScores
    >>> print(TaskScores(np.array([0.6, 0.8, 0.7, 0.7])))
    70.00 ± 8.00 % (95 % CI, 4 tasks)
    """

    accuracy: npt.NDArray[np.float64]
    calibration_error: float | None = None
    auroc: npt.NDArray[np.float64] | None = None

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


def paired(one: TaskScores, two: TaskScores) -> tuple[float, float]:
    """Mean gain of one over the other on the first tasks that both have, with half its interval."""
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
        Mean over the tasks of the accuracy of the first less that of the second.
    interval : float
        Half the width of the 95 % interval of the mean.
    """

    name: str
    reference: str
    mean: float
    interval: float

    def __str__(self) -> str:
        gain = f"{100 * self.mean:+.2f} ± {100 * self.interval:.2f} points"
        return f"{self.name} − {self.reference}: {gain} (95 % CI, paired)"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several classifiers on the same tasks.

    Attributes
    ----------
    scores : dict from name to TaskScores
    """

    scores: dict[str, TaskScores]

    def difference(self, name: str, reference: str) -> Difference:
        """Compare two of the classifiers task by task."""
        return Difference(name, reference, *paired(self.scores[name], self.scores[reference]))

    @property
    def differences(self) -> list[Difference]:
        """Every other classifier against the first."""
        reference, *others = self.scores
        return [self.difference(name, reference) for name in others]

    def __str__(self) -> str:
        width = max(map(len, self.scores))
        lines = [f"{name:<{width}}  {scores}" for name, scores in self.scores.items()]
        return "\n".join(lines + [str(difference) for difference in self.differences])


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
    device: str | None = None,
    memory: Memory | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> TaskScores:
    """Measure a classifier on many few-shot tasks.

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
        Queries of classes outside each task, to tell how well they are known as such.
    device : str, optional
        Where a :class:`P3DCClassifier` is measured: "cuda", "cuda:1" or "cpu" by torch, None by NumPy. The predictions
        are the same.
    memory : float or str, optional
        What may be used of the device's memory: bytes, a share of what is free, or text such as "2GB". Half of what is
        free, where nothing is said.
    progress : callable, optional
        Called now and then with the number of tasks done and of all tasks.
    executor : callable, optional
        Where tasks are measured; by default in this process. ``p3dc.cluster`` has another.

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
    comparison = compare(
        {"": classifier},
        features,
        n_way=n_way,
        n_shot=n_shot,
        n_query=n_query,
        n_tasks=n_tasks,
        seed=seed,
        n_unknown=n_unknown,
        device=device,
        memory=memory,
        progress=progress,
        executor=executor,
    )
    return comparison.scores[""]


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
    device: str | None = None,
    memory: Memory | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Comparison:
    """Measure several classifiers on the same tasks.

    Parameters
    ----------
    classifiers : mapping from name to classifier, or sequence of classifiers
        A sequence is named by the classes of its members.
    features, n_way, n_shot, n_query, n_tasks, seed, n_unknown, device, memory, progress, executor
        As in :func:`evaluate`.

    Returns
    -------
    Comparison
        With the scores of each and their paired differences, which have narrower intervals than the scores.

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
    check_count("n_tasks", n_tasks, 1)
    place = open_device(device, memory)
    sampler = TaskSampler(
        features.labels, n_way=n_way, n_shot=n_shot, n_query=n_query, seed=seed, class_names=features.class_names
    )
    prepare = partial(_recorder, sampler, named, features, n_unknown, place)
    return _joined((executor or executor_for(place))(prepare, n_tasks, progress))


class Sampler(Protocol):
    """Where tasks come from."""

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
    """Measure several classifiers on the first tasks of a sampler."""
    judges = _judges(classifiers, features, None)

    def records() -> Iterator[dict[str, _Record]]:
        done = 0
        for tasks in sampler.batches(n_tasks):
            yield _records(judges, (tasks, None))
            done += len(tasks)
            if progress:
                progress(done, n_tasks)

    return _joined(records())


def _judges(classifiers: Mapping[str, Any], features: FeatureSet, device: Device | None) -> dict[str, Judge]:
    return {name: judge(classifier, features, device) for name, classifier in classifiers.items()}


def _recorder(
    sampler: TaskSampler, classifiers: Mapping[str, Any], features: FeatureSet, n_unknown: int, device: Device | None
) -> Measure[dict[str, "_Record"]]:
    """Prepare classifiers for the tasks of one set of features."""

    def draw(numbers: range) -> Drawn:
        tasks = sampler.draw(len(numbers), numbers.start)
        return tasks, sampler.unknown_queries(tasks, n_unknown, numbers.start) if n_unknown else None

    return Measure(draw, partial(_records, _judges(classifiers, features, device)))


def _records(judges: Mapping[str, Judge], drawn: Drawn) -> dict[str, "_Record"]:
    tasks, outside = drawn
    records = {name: _Record() for name in judges}
    for name, verdict_on in judges.items():
        records[name].add(verdict_on(tasks, outside), tasks)
    return records


def _joined(parts: Iterable[dict[str, "_Record"]]) -> Comparison:
    records: dict[str, _Record] = {}
    for part in parts:
        for name, record in part.items():
            records.setdefault(name, _Record()).join(record)
    return Comparison({name: record.scores() for name, record in records.items()})


class _Record:
    """Verdicts on some tasks, of which only one number a task is kept."""

    def __init__(self) -> None:
        self.accuracy: list[npt.NDArray[np.float64]] = []
        self.auroc: list[npt.NDArray[np.float64]] = []
        self.reliability: Reliability | None = None

    def add(self, verdict: Verdict, tasks: Tasks) -> None:
        _, n_way, n_query = tasks.queries.shape
        self.accuracy.append(verdict.right / (n_way * n_query))
        if verdict.largest is not None and verdict.strange is not None:
            self.auroc.append(area_under_roc(verdict.largest, verdict.strange))
        if verdict.confidence is not None and verdict.hits is not None:
            self.reliability = self.reliability or Reliability()
            self.reliability.add(verdict.confidence.ravel(), verdict.hits.ravel())

    def join(self, after: "_Record") -> None:
        """Add the tasks that come after these."""
        self.accuracy += after.accuracy
        self.auroc += after.auroc
        if after.reliability is not None:
            self.reliability = self.reliability or Reliability()
            self.reliability.join(after.reliability)

    def scores(self) -> TaskScores:
        return TaskScores(
            np.concatenate(self.accuracy),
            None if self.reliability is None else self.reliability.error,
            np.concatenate(self.auroc) if self.auroc else None,
        )


def _by_class_name(classifiers: Sequence[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for classifier in classifiers:
        kind = type(classifier).__name__
        times = sum(type(other).__name__ == kind for other in named.values())
        named[f"{kind} ({times + 1})" if times else kind] = classifier
    return named
