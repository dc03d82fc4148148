"""The whole reproduction: from folders of features to a report."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import p3dc
from p3dc._validation import has_negative
from p3dc.errors import InputError
from p3dc.figures import CalibrationDisplay, GridComparisonDisplay, save_figure
from p3dc.io.atomic import write_json, write_text
from p3dc.reproduce.datasets import load_data_set
from p3dc.reproduce.experiments import Plan, StartStep, Study, run_study
from p3dc.reproduce.markup import Picture, to_html, to_markdown
from p3dc.reproduce.report import report_blocks, study_json
from p3dc.reproduce.signed import report_signed

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def reproduce(folders: Sequence[Path], out: Path, plan: Plan, start_step: StartStep = lambda _: None) -> list[Study]:
    """Run the paper's experiments on each folder of features and write the report.

    A folder has base, novel and, if possible, validation features. The report is ``report.html``, ``report.md``,
    ``report.json`` and ``figures``. Finished parts are kept too: an interrupted run continues where it stopped. Where
    features are negative, the paper's method is not defined: the report compares the methods that are.
    """
    data_sets = [load_data_set(folder) for folder in folders]
    names = [data.name for data in data_sets]
    if len(set(names)) < len(names):
        raise InputError(f"two folders have the same name: {', '.join(names)}. Rename one.")
    signed = [data for data in data_sets if has_negative(data.novel.features) or has_negative(data.validation.features)]
    if signed:
        if len(signed) < len(data_sets):
            raise InputError(f"{signed[0].name} has negative features, but not all folders do. Report on them apart.")
        out.mkdir(parents=True, exist_ok=True)
        report_signed(signed, out, plan, start_step)
        return []
    (out / "figures").mkdir(parents=True, exist_ok=True)
    parts = []
    for data in data_sets:
        study = run_study(data, plan, out, start_step)
        start_step("figures")
        parts.append((study, draw(study, out / "figures")))
    blocks = report_blocks(parts)
    write_text(out / "report.md", to_markdown(blocks, out))
    write_text(out / "report.html", to_html(blocks, "P3DC-Shot: the paper's experiments"))
    studies = [study for study, _ in parts]
    write_json(out / "report.json", report_json(plan, studies))
    return studies


def report_json(plan: Plan, studies: Sequence[Study]) -> dict[str, Any]:
    """Return all results as JSON; only ``seconds`` differs between equal runs."""
    return {
        "p3dc": p3dc.__version__,
        "plan": asdict(plan),
        "studies": [study_json(study) for study in studies],
        "seconds": {study.data.name: study.seconds for study in studies},
    }


def draw(study: Study, folder: Path) -> list[Picture]:
    """Draw Figures 3 and 4 of one data set, as PNG and SVG."""
    from matplotlib.figure import Figure

    data = study.data
    alpha, beta = study.weights[1, "raw"]
    moved = CalibrationDisplay.from_features(data.novel, data.priors, alpha=alpha, beta=beta, seed=study.plan.seed)
    figure = Figure(figsize=(9.5, 6), layout="constrained")
    moved.plot(figure.subplots())
    pictures = [_save(figure, folder / f"{data.name}-figure-3", f"Figure 3: {moved}")]
    validation = study.choices[1, "raw"]
    if validation is not None:
        figure = Figure(figsize=(11, 4.6), layout="constrained")
        grids = GridComparisonDisplay.from_searches(validation, study.novel_grid)
        grids.plot(figure.subplots(1, 2))
        pictures.append(_save(figure, folder / f"{data.name}-figure-4", f"Figure 4: {grids}"))
    return pictures


def _save(figure: "Figure", path: Path, caption: str) -> Picture:
    for ending in ("png", "svg"):
        save_figure(figure, path.with_name(f"{path.name}.{ending}"))
    return Picture(path.with_name(f"{path.name}.png"), caption)
