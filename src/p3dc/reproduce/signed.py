"""The report for features with negative entries: every method that is defined for them, and auto.

The paper's own rows, its grids and its figures take a root of the features, so that they are left out.
"""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import p3dc
from p3dc.baselines.registry import TABLE_1, Sources
from p3dc.classifier.estimator import P3DCClassifier
from p3dc.errors import InputError
from p3dc.evaluation.evaluate import compare, evaluate
from p3dc.evaluation.protocol import AUTO_ROW
from p3dc.evaluation.results import Comparison, left_out_lines, percent
from p3dc.evaluation.signed import REASON
from p3dc.io.atomic import write_json, write_text
from p3dc.reproduce.datasets import DataSet
from p3dc.reproduce.experiments import N_QUERY, N_WAY, SHOTS, Plan, StartStep
from p3dc.reproduce.markup import Block, Heading, Paragraph, to_html, to_markdown
from p3dc.reproduce.tabular import Table


@dataclass(frozen=True, eq=False)
class SignedStudy:
    """The methods that are defined for the features of one data set."""

    data: DataSet
    comparisons: dict[int, Comparison]  # by shots
    missing: dict[str, str]  # why a method could not be run


def report_signed(data_sets: Sequence[DataSet], out: Path, plan: Plan, start_step: StartStep) -> None:
    """Compare the methods on each data set, and write ``report.html``, ``report.md`` and ``report.json``."""
    studies = [run_signed(data, plan, out / "trained", start_step) for data in data_sets]
    blocks: list[Block] = [Heading("P3DC-Shot: the paper's experiments", 1)]
    for study in studies:
        blocks += signed_blocks(study)
    write_text(out / "report.md", to_markdown(blocks, out))
    write_text(out / "report.html", to_html(blocks, "P3DC-Shot: the paper's experiments"))
    found = [_json(study) for study in studies]
    write_json(out / "report.json", {"p3dc": p3dc.__version__, "plan": asdict(plan), "studies": found})


def run_signed(data: DataSet, plan: Plan, trained: Path, start_step: StartStep) -> SignedStudy:
    """Evaluate every method of the plan that is defined, on the same tasks."""
    left_out = {TABLE_1[key].title: REASON for key in plan.methods if TABLE_1[key].takes_roots}
    left_out = {"P3DC-Shot as in the paper": REASON} | left_out
    for line in left_out_lines(left_out):
        warnings.warn(f"{data.name}: {line}", stacklevel=2)
    comparisons, missing = {}, {}
    for n_shot in SHOTS:
        drawing: dict[str, Any] = {"n_way": N_WAY, "n_shot": n_shot, "n_query": N_QUERY, "seed": plan.seed}
        validate = partial(_accuracy, data=data, n_tasks=min(plan.select_tasks, plan.n_tasks), **drawing)
        sources = Sources(data.priors, data.base, data.selection_base, validate, trained, data.paper_name)
        classifiers: dict[str, Any] = {}
        for key in plan.methods:
            if not TABLE_1[key].takes_roots:
                try:
                    classifiers[TABLE_1[key].title] = TABLE_1[key].build(sources)
                except InputError as error:
                    missing[TABLE_1[key].title] = str(error)
        classifiers[AUTO_ROW] = P3DCClassifier(data.priors)
        progress = start_step(f"{data.name}, {N_WAY}-way {n_shot}-shot")
        found = compare(classifiers, data.novel, **drawing, n_tasks=plan.n_tasks, progress=progress)
        comparisons[n_shot] = Comparison(found.scores, left_out)
    return SignedStudy(data, comparisons, missing)


def signed_blocks(study: SignedStudy) -> list[Block]:
    """Write one data set: what was left out, and the accuracy of each method."""
    first = study.comparisons[SHOTS[0]]
    rows = [
        [name, *(percent(found.scores[name].mean, found.scores[name].interval) for found in study.comparisons.values())]
        for name in first.scores
    ]
    n_tasks = len(next(iter(first.scores.values())).accuracy)
    lines = [*left_out_lines(first.left_out), *(f"Not measured: {name}. {why}" for name, why in study.missing.items())]
    table = Table(
        ["method", *(f"{n_shot}-shot" for n_shot in study.comparisons)],
        rows,
        f"Accuracy (%) on novel classes, {N_WAY} ways, {n_tasks:,} tasks, 95 % intervals.",
    )
    return [Heading(study.data.name), *map(Paragraph, lines), table]


def _accuracy(classifier: Any, *, data: DataSet, **drawing: Any) -> float:
    return evaluate(classifier, data.validation, **drawing).mean


def _json(study: SignedStudy) -> dict[str, Any]:
    first = study.comparisons[SHOTS[0]]
    results = [
        {"n_shot": n_shot, "methods": [{"name": name, **one.summary()} for name, one in found.scores.items()]}
        for n_shot, found in study.comparisons.items()
    ]
    facts = {"name": study.data.name, "left_out": dict(first.left_out), "missing": study.missing}
    return facts | {"results": results}
