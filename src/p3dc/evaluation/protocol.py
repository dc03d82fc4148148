"""The paper's protocol: choose α and β on validation classes, or for each task, then compare on novel classes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from p3dc._arrays import Progress
from p3dc.adaptive.settings import Settings
from p3dc.baselines.registry import METHODS, Sources
from p3dc.classifier.estimator import P3DCClassifier
from p3dc.errors import InputError
from p3dc.evaluation.evaluate import compare, evaluate
from p3dc.evaluation.executors import Executor, PileQueries, step_progress
from p3dc.evaluation.results import Comparison
from p3dc.evaluation.runners import WithoutPile
from p3dc.evaluation.search import SearchResult, search
from p3dc.evaluation.signed import REASON, refuse, undefined_methods
from p3dc.features import FeatureSet
from p3dc.method import Attention
from p3dc.priors.prototypes import Priors
from p3dc.scoring.device_memory import Memory
from p3dc.tasks import PileBalance

KEYS = (*METHODS, "p3dc", "auto")
DEFAULT_METHODS = ("nn", "l2n", "cl2n", "p3dc")
AUTO_ROW, PILE_ROW = "P3DC (auto)", "P3DC (auto, pile)"
DRAWN_FOR_NOVEL = ("n_unknown", "n_pile", "pile_balance", "pile_unknown", "pile_queries", "pile_unknown_classes")
DEFAULT_WEIGHTS = (0.0, 0.9)
"""α and β of the paper's method where there are no classes to choose them on."""

ROW_NAMES = {key: method.name for key, method in METHODS.items()} | {"p3dc": "P3DC"}

SELECTION_TASKS = 500
"""Validation tasks to choose the parameters of compared methods on, at most."""


@dataclass(frozen=True)
class Choice:
    """The weights of one P3DC row and how they were chosen.

    Attributes
    ----------
    alpha, beta : float or None
        None where each task has its own.
    origin : {"given", "default", "chosen on the validation classes", "chosen for each task"}
    search : SearchResult or None
        The grid that they were chosen from.
    """

    alpha: float | None
    beta: float | None
    origin: str
    search: SearchResult | None = None


@dataclass(frozen=True, eq=False)
class EvaluationResult:
    """Methods compared on tasks with one number of shots.

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
class EvaluationPlan:
    """How tasks are drawn and which methods are compared.

    Attributes
    ----------
    n_way, n_query, n_tasks, seed : int
    n_unknown : int
        Queries of classes outside each task.
    n_pile, pile_balance, pile_unknown, pile_queries, pile_unknown_classes
        Unlabelled photos of each task, as in :func:`p3dc.evaluate`. With a pile, "auto" has one row that learns from it
        and one that does not; "p3dc" does not.
    methods : sequence of str
        Keys of :data:`p3dc.baselines.registry.METHODS`, "p3dc" (fixed weights) and "auto" (adaptive weights). Where
        features are negative, those that take a root of them are left out.
    attentions : sequence of str
        P3DC has one row for each.
    point : (alpha, beta), optional
        The weights; by default they are chosen on validation classes.
    settings : dict
        Other parameters of P3DCClassifier.
    """

    n_way: int = 5
    n_query: int = 15
    n_tasks: int = 2000
    seed: int = 0
    n_unknown: int = 0
    n_pile: int = 0
    pile_balance: PileBalance = "equal"
    pile_unknown: float = 0.0
    pile_queries: PileQueries = "inside"
    pile_unknown_classes: int | None = None
    methods: Sequence[str] = DEFAULT_METHODS
    attentions: Sequence[Attention] = ("raw",)
    point: tuple[float, float] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = [name for name in self.methods if name not in KEYS]
        if unknown:
            raise InputError(f"there is no method {unknown[0]!r}. Choose from {', '.join(KEYS)}.")
        for attention in self.attentions:
            Settings(attention=attention)

    def methods_for(self, *sets: FeatureSet) -> tuple[list[str], dict[str, str]]:
        """Return the methods to run on these features, and those to leave out with the reason."""
        methods = list(dict.fromkeys(self.methods))
        undefined = undefined_methods(methods, sets, self.settings.get("power", 0.5))
        if len(undefined) == len(methods):
            raise refuse(undefined)
        return [key for key in methods if key not in undefined], {ROW_NAMES[key]: REASON for key in undefined}


def run_plan(
    plan: EvaluationPlan,
    n_shot: int,
    *,
    priors: Priors,
    novel: FeatureSet,
    validation: FeatureSet | None = None,
    base: FeatureSet | None = None,
    device: str | None = None,
    memory: Memory | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> EvaluationResult:
    """Choose α and β on the validation classes, unless a point is given, and compare the methods on novel classes.

    With neither, the weights are :data:`DEFAULT_WEIGHTS`. Some methods need ``base``, the features of
    the base classes. Whether the sets have common classes is not checked here, but by
    :func:`p3dc.evaluation.splits.check_disjoint`. ``device`` and ``memory`` are those of :func:`p3dc.evaluate`.
    """
    drawing: dict[str, Any] = {"n_way": plan.n_way, "n_shot": n_shot, "n_query": plan.n_query, "seed": plan.seed}
    where: dict[str, Any] = {"n_tasks": plan.n_tasks, "device": device, "memory": memory, "executor": executor}
    methods, left_out = plan.methods_for(novel, *([] if validation is None else [validation]))
    attentions = list(dict.fromkeys(plan.attentions)) if "p3dc" in methods else []
    n_steps = len(attentions) * (validation is not None and plan.point is None) + 1

    def accuracy(classifier: Any) -> float:
        n_tasks = min(plan.n_tasks, SELECTION_TASKS)
        return evaluate(classifier, validation, **drawing, n_tasks=n_tasks).mean  # type: ignore[arg-type]

    sources = Sources(priors, base, validation=None if validation is None else accuracy, n_shot=n_shot).of_photos(novel)
    for key in methods:  # before any of the work is done
        if key in METHODS:
            METHODS[key].check(sources)
    choices: dict[str, Choice] = {}
    classifiers: dict[str, Any] = {}
    for key in methods:
        if key == "auto":
            shared = {name: value for name, value in plan.settings.items() if name == "n_nearest"}
            auto = P3DCClassifier(priors, **shared)
            rows = {AUTO_ROW: WithoutPile(auto)} | ({PILE_ROW: auto} if plan.n_pile else {})
            classifiers |= rows
            choices |= dict.fromkeys(rows, Choice(None, None, "chosen for each task"))
            continue
        if key != "p3dc":
            classifiers[METHODS[key].name] = METHODS[key].build(sources)
            continue
        for step, attention in enumerate(attentions):
            row = "P3DC" if attention == "raw" else f"P3DC ({attention})"
            classifier = P3DCClassifier(priors, space="plain", attention=attention, **plan.settings)
            point, origin, found = DEFAULT_WEIGHTS, "default", None
            if plan.point is not None:
                point, origin = plan.point, "given"
            elif validation is not None:
                tuned = {name: getattr(classifier, name) for name in ("n_nearest", "power", "scale", "attention")}
                part = step_progress(progress, step, n_steps)
                found = search(priors, validation, **drawing, **where, **tuned, progress=part)
                point, origin = (found.best.alpha, found.best.beta), "chosen on the validation classes"
            classifiers[row] = WithoutPile(classifier.set_params(alpha=point[0], beta=point[1]))
            choices[row] = Choice(*point, origin, found)
    last = step_progress(progress, n_steps - 1, n_steps)
    drawing |= {name: getattr(plan, name) for name in DRAWN_FOR_NOVEL}
    comparison = compare(classifiers, novel, **drawing, **where, progress=last)
    return EvaluationResult(n_shot, Comparison(comparison.scores, left_out), choices)
