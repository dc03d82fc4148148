"""The paper's protocol: choose α and β on validation classes, or for each task, then compare on novel classes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from p3dc.adaptive.settings import Settings
from p3dc.baselines import CL2N, L2N, NN, SimpleShot
from p3dc.classifier.estimator import P3DCClassifier
from p3dc.errors import InputError
from p3dc.evaluation.evaluate import Comparison, Executor, Progress, compare, part_of
from p3dc.evaluation.search import SearchResult, search
from p3dc.features import FeatureSet
from p3dc.method import Attention
from p3dc.priors.prototypes import Priors
from p3dc.scoring.device_memory import Memory

BASELINES: dict[str, tuple[str, Callable[[Priors], Any]]] = {
    "nn": ("NN", lambda _: NN()),
    "l2n": ("L2N", lambda _: L2N()),
    "cl2n": ("CL2N", CL2N),
    "simpleshot": ("SimpleShot", SimpleShot),
}
METHODS = (*BASELINES, "p3dc", "auto")
DEFAULT_METHODS = ("nn", "l2n", "cl2n", "p3dc")
AUTO_ROW = "P3DC (auto)"
DEFAULT_WEIGHTS = (0.0, 0.9)
"""α and β of the paper's method where there are no classes to choose them on."""


@dataclass(frozen=True)
class Choice:
    """The weights of one P3DC row and where they come from.

    Attributes
    ----------
    alpha, beta : float or None
        None where each task has its own.
    origin : {"given", "default", "chosen on the validation classes", "chosen for each task"}
    search : SearchResult or None
        What they were chosen from.
    """

    alpha: float | None
    beta: float | None
    origin: str
    search: SearchResult | None = None


@dataclass(frozen=True, eq=False)
class Experiment:
    """Methods compared on the tasks of one shot.

    Attributes
    ----------
    n_shot : int
    comparison : Comparison
    choices : dict from row name to Choice
        The weights of the P3DC rows.
    """

    n_shot: int
    comparison: Comparison
    choices: dict[str, Choice]


@dataclass(frozen=True)
class Protocol:
    """How tasks are drawn and which methods are compared.

    Attributes
    ----------
    n_way, n_query, n_tasks, seed : int
    n_unknown : int
        Queries of classes outside each task.
    methods : sequence of str
        Any of "nn", "l2n", "cl2n", "simpleshot", "p3dc" and "auto".
    attentions : sequence of str
        Each gives a row for P3DC.
    point : (alpha, beta), optional
        The weights, where they are not to be chosen on validation classes.
    settings : dict
        Other parameters of P3DCClassifier.
    """

    n_way: int = 5
    n_query: int = 15
    n_tasks: int = 2000
    seed: int = 0
    n_unknown: int = 0
    methods: Sequence[str] = DEFAULT_METHODS
    attentions: Sequence[Attention] = ("raw",)
    point: tuple[float, float] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = [name for name in self.methods if name not in METHODS]
        if unknown:
            raise InputError(f"there is no method {unknown[0]!r}. Choose from {', '.join(METHODS)}.")
        for attention in self.attentions:
            Settings(attention=attention)


def run(
    protocol: Protocol,
    n_shot: int,
    *,
    priors: Priors,
    novel: FeatureSet,
    validation: FeatureSet | None = None,
    device: str | None = None,
    memory: Memory | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Experiment:
    """Choose α and β on the validation classes, if there are any and no point is given, and compare on novel ones.

    Without either, the weights are the defaults of :class:`P3DCClassifier`. That the sets have no class in common is
    for :func:`check_disjoint` to say. ``device`` and ``memory`` are those of :func:`p3dc.evaluate`.
    """
    drawing: dict[str, Any] = {
        "n_way": protocol.n_way,
        "n_shot": n_shot,
        "n_query": protocol.n_query,
        "n_tasks": protocol.n_tasks,
        "seed": protocol.seed,
        "device": device,
        "memory": memory,
        "executor": executor,
    }
    attentions = list(dict.fromkeys(protocol.attentions)) if "p3dc" in protocol.methods else []
    searching = validation is not None and protocol.point is None
    n_steps = len(attentions) * searching + 1
    choices: dict[str, Choice] = {}
    classifiers: dict[str, Any] = {}
    for name in dict.fromkeys(protocol.methods):
        if name == "auto":
            shared = {key: value for key, value in protocol.settings.items() if key == "n_nearest"}
            classifiers[AUTO_ROW] = P3DCClassifier(priors, **shared)
            choices[AUTO_ROW] = Choice(None, None, "chosen for each task")
            continue
        if name != "p3dc":
            row, make = BASELINES[name]
            classifiers[row] = make(priors)
            continue
        for step, attention in enumerate(attentions):
            row = "P3DC" if attention == "raw" else f"P3DC ({attention})"
            classifier = P3DCClassifier(priors, space="plain", attention=attention, **protocol.settings)
            point, origin, found = DEFAULT_WEIGHTS, "default", None
            if protocol.point is not None:
                point, origin = protocol.point, "given"
            elif validation is not None:
                tuned = {key: getattr(classifier, key) for key in ("n_nearest", "power", "scale", "attention")}
                found = search(priors, validation, **drawing, **tuned, progress=part_of(progress, step, n_steps))
                point, origin = (found.best.alpha, found.best.beta), "chosen on the validation classes"
            classifiers[row] = classifier.set_params(alpha=point[0], beta=point[1])
            choices[row] = Choice(*point, origin, found)
    drawing["n_unknown"] = protocol.n_unknown
    measured = compare(classifiers, novel, **drawing, progress=part_of(progress, n_steps - 1, n_steps))
    return Experiment(n_shot, measured, choices)
