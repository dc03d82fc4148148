"""The paper's experiments on one data set. Selection sees base and validation classes only."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

import p3dc
from p3dc import method
from p3dc._arrays import Progress
from p3dc.baselines.contract import TaskMethod
from p3dc.baselines.deepvoro import N_VIEWS, DeepVoro
from p3dc.baselines.registry import TABLE_1, Sources
from p3dc.baselines.trained import TrainedMethod, one_torch_thread
from p3dc.classifier.estimator import P3DCClassifier
from p3dc.errors import InputError
from p3dc.evaluation.evaluate import Sampler, compare_on, evaluate
from p3dc.evaluation.results import TaskScores
from p3dc.evaluation.search import SearchResult, search
from p3dc.features import FeatureSet
from p3dc.method import Attention
from p3dc.reproduce.cache import Cache
from p3dc.reproduce.calibration import CalibrationMeasures, measure_calibration
from p3dc.reproduce.datasets import DataSet
from p3dc.reproduce.processes import Part, finish_in_processes
from p3dc.reproduce.published import PREFERENCES, SELECTED, WAYS
from p3dc.reproduce.release import ReleaseP3DC, ReleaseSampler
from p3dc.reproduce.table1 import FIXED_POINTS, TABLE_3_METHODS
from p3dc.tasks import TaskSampler

N_WAY, N_QUERY = 5, 15
SHOTS = (1, 5)
QUICK = {"n_tasks": 100, "slow_tasks": 20, "select_tasks": 50}
"""How much a quick look measures."""

StartStep = Callable[[str], Progress | None]
"""Called with the title of a step that begins; returns the callback for its progress."""


@dataclass(frozen=True)
class Plan:
    """How much to measure, and by which protocol: the paper's, or that of the authors' released scripts."""

    n_tasks: int = 2000  # for every method that is not slow
    slow_tasks: int = 500  # the first of the same tasks, for slow methods
    select_tasks: int = 500  # validation tasks to choose the parameters of compared methods on
    seed: int = 0
    protocol: Literal["paper", "release"] = "paper"
    methods: Sequence[str] = tuple(TABLE_1)  # keys of the compared methods

    def __post_init__(self) -> None:
        unknown = [key for key in self.methods if key not in TABLE_1]
        if unknown:
            raise InputError(f"there is no method {unknown[0]!r}. Choose from {', '.join(TABLE_1)}.")
        if self.protocol not in ("paper", "release"):
            raise InputError(f"protocol is {self.protocol!r}. It must be paper or release.")


@dataclass(frozen=True, eq=False)
class MethodResult:
    """The accuracies of one method with its parameters, or the reason why they are missing."""

    scores: TaskScores | None
    parameters: str = ""
    missing: str = ""


@dataclass(frozen=True, eq=False)
class Study:
    """All results on one data set."""

    data: DataSet
    plan: Plan
    choices: dict[tuple[int, Attention], SearchResult | None]  # by shots; None where α and β are the paper's
    weights: dict[tuple[int, Attention], tuple[float, float]]  # by shots: α and β
    table_1: dict[tuple[str, int], MethodResult]  # by key and shots
    table_3: dict[tuple[str, int], MethodResult]  # by key and ways
    table_4: dict[Attention, MethodResult]  # at the weights chosen for attentive prototypes
    preferred: dict[str, MethodResult]  # one-shot, at the (α, β) that the paper selected for each data set
    calibration: CalibrationMeasures  # of the support of one-shot tasks
    novel_grid: SearchResult  # one-shot accuracies on novel classes, which are shown but choose nothing
    seconds: dict[str, float]  # of one 5-way 5-shot task

    @property
    def methods(self) -> list[str]:
        """The keys of the compared methods, which may have been measured by an earlier run."""
        return [key for key in TABLE_1 if (key, SHOTS[0]) in self.table_1]


def run_study(
    data: DataSet, plan: Plan, folder: Path, start_step: StartStep = lambda _: None, n_jobs: int = 1
) -> Study:
    """Run every experiment, keeping finished parts in a folder.

    Methods that an earlier run has finished with the same plan are part of the study, whether the plan has them or not.
    Several processes compute what one would.
    """
    context = {**asdict(plan), "methods": None, "version": p3dc.__version__, "data": data.fingerprint}
    cache = Cache(folder / "parts" / data.name, str(context | {"paper_name": data.paper_name}))
    ways = [n_way for n_way in WAYS if n_way <= len(data.novel.class_names)]
    finished = [key for key in TABLE_1 if all(part in cache for part in _parts_of(key, ways))]
    plan = replace(plan, methods=[key for key in TABLE_1 if key in plan.methods or key in finished])
    work = _Experiments(data, plan, cache, folder / "trained", start_step)
    with threadpool_limits(1, user_api="blas"):
        attentions: tuple[Attention, ...] = ("raw", "unit")
        choosing = {key: Part("choose", key) for key in product(SHOTS, attentions)}
        compared_1 = {key: Part("evaluate", key) for key in product(plan.methods, SHOTS)}
        compared_3 = {
            (key, n_way): Part("evaluate", (key, 1, n_way))
            for n_way, key in product(ways, TABLE_3_METHODS)
            if key in plan.methods
        }
        _finish(work, [*compared_1.values(), *compared_3.values(), *choosing.values()], "compared methods", n_jobs)
        choices = _read(work, choosing)
        weights = {
            key: SELECTED[str(data.paper_name), key[0]] if found is None else (found.best.alpha, found.best.beta)
            for key, found in choices.items()
        }
        ours_1, ours_3 = _p3dc_parts(weights, ways)
        prototypes: tuple[Attention, ...] = ("mean", "raw")
        parts_4 = {kind: _p3dc("table-4", 5, N_WAY, weights[5, "raw"], kind) for kind in prototypes}
        preferring = {
            name: _p3dc(f"p3dc-{name}", 1, N_WAY, SELECTED[name, 1], "raw")
            for name in PREFERENCES
            if data.paper_name in PREFERENCES
        }
        others = {
            "calibration": Part("measure_calibration", (weights[1, "raw"],)),
            "novel_grid": Part("novel_grid", ()),
        }
        ours = [part for parts in (ours_1, ours_3, parts_4, preferring, others) for part in parts.values()]
        _finish(work, ours, "P3DC", n_jobs)
        return Study(
            data,
            plan,
            choices,
            weights,
            table_1=_read(work, _ordered(compared_1 | ours_1)),
            table_3=_read(work, _ordered(compared_3 | ours_3)),
            table_4=_read(work, parts_4),
            preferred=_read(work, preferring),
            **_read(work, others),
            seconds=work.time(weights[5, "raw"]),
        )


def _p3dc(key: str, n_shot: int, n_way: int, point: tuple[float, float], attention: Attention) -> Part:
    return Part("evaluate_p3dc", (key, n_shot, n_way, point, attention))


def _p3dc_parts(
    weights: dict[tuple[int, Attention], tuple[float, float]], ways: Sequence[int]
) -> tuple[dict[tuple[str, int], Part], dict[tuple[str, int], Part]]:
    """List the rows of P3DC in Tables 1 and 3."""
    table_1 = {}
    for n_shot in SHOTS:
        for key, point in (*FIXED_POINTS.items(), ("p3dc", weights[n_shot, "raw"])):
            table_1[key, n_shot] = _p3dc(key, n_shot, N_WAY, point, "raw")
        table_1["p3dc-unit", n_shot] = _p3dc("p3dc-unit", n_shot, N_WAY, weights[n_shot, "unit"], "unit")
        table_1["p3dc-auto", n_shot] = Part("evaluate_adaptive", (n_shot,))
    return table_1, {("p3dc", n_way): _p3dc("p3dc", 1, n_way, weights[1, "raw"], "raw") for n_way in ways}


def _ordered(parts: dict[tuple[str, int], Part]) -> dict[tuple[str, int], Part]:
    """Order the rows of a table by shots or ways, then as they are."""
    return dict(sorted(parts.items(), key=lambda item: item[0][1]))


def _read(work: "_Experiments", parts: dict[Any, Part]) -> dict[Any, Any]:
    return {key: part.finish(work) for key, part in parts.items()}


def _finish(work: "_Experiments", parts: Sequence[Part], title: str, n_jobs: int) -> None:
    """Compute parts in several processes, the longest first; in one process they are computed when they are read.

    A module is trained once, so all parts of its method are one job.
    """
    if n_jobs == 1:
        return
    jobs: dict[Any, list[Part]] = {}
    for part in sorted(parts, key=_rank):
        trained = part.method == "evaluate" and "torch" in TABLE_1[part.arguments[0]].needs
        jobs.setdefault(part.arguments[0] if trained else part, []).append(part)
    progress = work.start_step(f"{work.data.name}: {title}, {n_jobs} at a time")
    finish_in_processes(replace(work, start_step=_no_progress), list(jobs.values()), n_jobs, progress)


def _rank(part: Part) -> int:
    """Return a smaller number for parts that take longer: trained, slow, with parameters to choose, others."""
    if part.method != "evaluate":
        return 3
    compared = TABLE_1[part.arguments[0]]
    return [("torch" in compared.needs), compared.slow, "validation" in compared.needs, True].index(True)


def _no_progress(_: str) -> None:
    return None


def _parts_of(key: str, ways: Sequence[int]) -> list[str]:
    """List the parts of the cache that a finished method has."""
    settings = [(N_WAY, n_shot) for n_shot in SHOTS] + [(n_way, 1) for n_way in ways if key in TABLE_3_METHODS]
    return [f"{key}-{n_way}-{n_shot}" for n_way, n_shot in settings]


@dataclass(frozen=True)
class _Experiments:
    data: DataSet
    plan: Plan
    cache: Cache
    trained: Path
    start_step: StartStep

    def sampler(self, n_way: int, n_shot: int) -> Sampler:
        features, options = self.data.novel, {"n_way": n_way, "n_shot": n_shot, "n_query": N_QUERY}
        if self.plan.protocol == "release":
            return ReleaseSampler(features, **options, seed=self.plan.seed)
        return TaskSampler(features.labels, **options, seed=self.plan.seed, class_names=features.class_names)

    def choose(self, n_shot: int, attention: Attention) -> SearchResult | None:
        """Search (α, β) on validation classes; None where the released scripts use the paper's."""
        if self.plan.protocol == "release":
            return None
        return self.grid(f"choice-{n_shot}-{attention}", self.data.validation, n_shot, attention)

    def grid(self, key: str, features: FeatureSet, n_shot: int, attention: Attention) -> SearchResult:
        role = "novel" if features is self.data.novel else "validation"
        priors = self.data.priors if role == "novel" else self.data.selection_priors
        n_tasks = self.plan.n_tasks

        def compute() -> dict[str, Any]:
            progress = self.start_step(f"α and β on {role} tasks, {n_shot}-shot, {attention}")
            found = search(priors, features, **self._drawing(n_shot, n_tasks), attention=attention, progress=progress)
            return {name: getattr(found, name).tolist() for name in ("alpha", "beta", "accuracy", "interval")}

        columns: dict[str, Any] = {
            name: np.array(values, dtype=np.float64) for name, values in self.cache.get(key, compute).items()
        }
        return SearchResult(**columns, n_tasks=n_tasks)

    def novel_grid(self) -> SearchResult:
        """Evaluate the grid on novel classes, which is shown but chooses nothing."""
        return self.grid("novel-grid", self.data.novel, 1, "raw")

    def evaluate(self, key: str, n_shot: int, n_way: int = N_WAY) -> MethodResult:
        """Evaluate one of the compared methods."""
        compared = TABLE_1[key]
        n_tasks = min(self.plan.n_tasks, self.plan.slow_tasks) if compared.slow else self.plan.n_tasks

        def compute() -> dict[str, Any]:
            row = f"{compared.title}, {n_way}-way {n_shot}-shot"
            chooses = "validation" in compared.needs
            choosing = self.start_step(f"{row}: choosing parameters") if chooses else None
            data, validate = self.data, partial(self._validate, n_shot=n_shot, progress=choosing)
            sources = Sources(
                data.priors, data.base, data.selection_base, validate, self.trained, data.paper_name, n_shot
            )
            classifier = compared.build(sources.of_photos(data.novel))
            with ExitStack() as limits:
                if isinstance(classifier, TrainedMethod):
                    limits.enter_context(one_torch_thread())
                    classifier.train(self.start_step(f"{compared.title}: training"))
                scores = self._scores(classifier, n_way, n_shot, n_tasks, self.start_step(row))
            return {"accuracy": scores.accuracy.tolist(), "parameters": _parameters(classifier)}

        try:
            return _as_result(self.cache.get(f"{key}-{n_way}-{n_shot}", compute))
        except InputError as error:
            return MethodResult(None, missing=str(error))

    def evaluate_p3dc(
        self, key: str, n_shot: int, n_way: int, point: tuple[float, float], attention: Attention
    ) -> MethodResult:
        """Evaluate P3DC at one (α, β)."""

        def compute() -> dict[str, Any]:
            weights = f"α = {point[0]:.2g}, β = {point[1]:.2g}"
            progress = self.start_step(f"P3DC at {weights}, {n_way}-way {n_shot}-shot, {attention}")
            kind: Any = ReleaseP3DC if self.plan.protocol == "release" else partial(P3DCClassifier, space="plain")
            classifier = kind(self.data.priors, alpha=point[0], beta=point[1], attention=attention)
            scores = self._scores(classifier, n_way, n_shot, self.plan.n_tasks, progress)
            return {"accuracy": scores.accuracy.tolist(), "parameters": weights}

        return _as_result(self.cache.get(f"{key}-{n_way}-{n_shot}-{attention}", compute))

    def evaluate_adaptive(self, n_shot: int) -> MethodResult:
        """Evaluate the default of the library, which chooses its weights for each task."""

        def compute() -> dict[str, Any]:
            progress = self.start_step(f"adaptive P3DC, {N_WAY}-way {n_shot}-shot")
            scores = self._scores(P3DCClassifier(self.data.priors), N_WAY, n_shot, self.plan.n_tasks, progress)
            return {"accuracy": scores.accuracy.tolist(), "parameters": "α and β chosen for each task"}

        return _as_result(self.cache.get(f"p3dc-auto-{N_WAY}-{n_shot}", compute))

    def measure_calibration(self, point: tuple[float, float]) -> CalibrationMeasures:
        """Measure where calibration moves the support of one-shot tasks."""

        def compute() -> dict[str, Any]:
            self.start_step("class centres and the weights of Eq. 6")
            batches = self.sampler(N_WAY, 1).batches(self.plan.n_tasks, 100)
            priors = self.data.priors.prototypes.astype(np.float64)
            return asdict(measure_calibration(self.data.novel, priors, batches, point))

        return CalibrationMeasures.from_dict(self.cache.get("calibration", compute))

    def time(self, point: tuple[float, float]) -> dict[str, float]:
        """Time single 5-way 5-shot tasks, one after the other: both steps of P3DC, and DeepVoro with all its views."""
        self.start_step("timing")
        features, priors = self.data.novel.features, self.data.priors.prototypes
        [tasks] = self.sampler(N_WAY, 5).batches(min(200, self.plan.n_tasks), 200)
        rival, labels = DeepVoro(tuple(range(N_VIEWS))), np.repeat(np.arange(N_WAY), 5)
        seconds: dict[str, list[float]] = {"calibrate": [], "classify": [], "deepvoro": []}
        for support, queries in zip(tasks.support, tasks.queries, strict=True):
            samples, unlabelled = features[support.ravel()].astype(float), features[queries.ravel()].astype(float)
            times = [time.perf_counter()]
            calibrated = method.calibrate(samples, priors, alpha=point[0], beta=point[1])
            times.append(time.perf_counter())
            method.classify(unlabelled, calibrated.reshape(N_WAY, 5, -1))
            times.append(time.perf_counter())
            rival.score_tasks(rival.learn_tasks(samples[None], labels), unlabelled[None])
            times.append(time.perf_counter())
            for spent, duration in zip(seconds.values(), np.diff(times), strict=True):
                spent.append(float(duration))
        return {name: float(np.median(spent)) for name, spent in seconds.items()}

    def _scores(self, classifier: Any, n_way: int, n_shot: int, n_tasks: int, progress: Progress | None) -> TaskScores:
        sampler = self.sampler(n_way, n_shot)
        found = compare_on(sampler, {"": classifier}, self.data.novel, n_tasks=n_tasks, progress=progress)
        return found.scores[""]

    def _validate(self, classifier: Any, n_shot: int, progress: Progress | None) -> float:
        n_tasks = min(self.plan.select_tasks, self.plan.n_tasks)
        return evaluate(classifier, self.data.validation, **self._drawing(n_shot, n_tasks), progress=progress).mean

    def _drawing(self, n_shot: int, n_tasks: int) -> dict[str, Any]:
        return {"n_way": N_WAY, "n_shot": n_shot, "n_query": N_QUERY, "n_tasks": n_tasks, "seed": self.plan.seed}


def _as_result(value: dict[str, Any]) -> MethodResult:
    accuracy: npt.NDArray[np.float64] = np.array(value["accuracy"])
    return MethodResult(TaskScores(accuracy), value["parameters"])


def _parameters(classifier: TaskMethod) -> str:
    """List the parameters of a method that are numbers."""
    plain = {k: v for k, v in classifier.get_params().items() if isinstance(v, int | float | tuple)}
    return ", ".join(f"{name} {value}" for name, value in sorted(plain.items()) if name != "random_state")
