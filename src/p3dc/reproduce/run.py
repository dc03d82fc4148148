"""The whole reproduction: from folders of features to a report."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3dc._validation import has_negative
from p3dc.baselines.registry import TABLE_1
from p3dc.errors import InputError
from p3dc.figures import CalibrationDisplay, GridComparisonDisplay, save_figure
from p3dc.io.atomic import write_json, write_text
from p3dc.reproduce.datasets import load_data_set
from p3dc.reproduce.experiments import Plan, StartStep, Study, run_study
from p3dc.reproduce.latex import to_latex
from p3dc.reproduce.markup import Picture, to_html, to_markdown
from p3dc.reproduce.provenance import command, versions
from p3dc.reproduce.published import SPLITS
from p3dc.reproduce.report import report_blocks, study_json
from p3dc.reproduce.signed import report_signed
from p3dc.reproduce.tabular import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def reproduce(
    folders: Sequence[Path],
    out: Path,
    plan: Plan,
    start_step: StartStep = lambda _: None,
    known_as: Sequence[str] = (),
    n_jobs: int = 1,
) -> list[Study]:
    """Run the paper's experiments on each folder of features and write the report.

    A folder has base, novel and, if possible, validation features. The report is ``report.html``, ``report.md``,
    ``report.json``, ``figures`` and ``tables`` (LaTeX). Finished parts are kept too: an interrupted run continues where
    it stopped, and a run with fewer methods keeps the rows of the others. ``known_as`` names the paper's data set that
    each folder holds, where the names of its classes do not say so. Where features are negative, the paper's method is
    not defined: the report compares the methods that are. ``n_jobs`` processes compute it.
    """
    if known_as and len(known_as) != len(folders):
        raise InputError(
            f"--as is given {len(known_as)} times for {len(folders)} folders. Give it once for each folder."
        )
    data_sets = [load_data_set(folder, title) for folder, title in zip_longest(folders, known_as)]
    names = [data.name for data in data_sets]
    if len(set(names)) < len(names):
        raise InputError(f"two folders have the same name: {', '.join(names)}. Rename one.")
    for data in data_sets:
        if plan.protocol == "release" and data.paper_name is None:
            raise InputError(
                f"the released scripts use the α and β of a data set of the paper, and {data.name} does not have the "
                f"classes of one. Say which it is: --as {' or '.join(SPLITS).lower()}."
            )
    signed = [data for data in data_sets if has_negative(data.novel.features) or has_negative(data.validation.features)]
    if signed:
        if len(signed) < len(data_sets):
            raise InputError(f"{signed[0].name} has negative features, but not all folders do. Report on them apart.")
        out.mkdir(parents=True, exist_ok=True)
        report_signed(signed, out, plan, start_step)
        return []
    for folder in ("figures", "tables"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    parts = []
    for data in data_sets:
        study = run_study(data, plan, out, start_step, n_jobs)
        start_step("figures")
        parts.append((study, draw(study, out / "figures")))
    studies = [study for study, _ in parts]
    methods = [key for key in TABLE_1 if any(key in study.methods for study in studies)]
    blocks = report_blocks(parts, command(folders, out, plan, methods, known_as))
    for block in blocks:
        if isinstance(block, Table) and block.name:
            write_text(out / "tables" / f"{block.name}.tex", to_latex(block))
    write_text(out / "report.md", to_markdown(blocks, out))
    write_text(out / "report.html", to_html(blocks, "P3DC-Shot: the paper's experiments"))
    write_json(out / "report.json", report_json(plan, studies))
    return studies


def report_json(plan: Plan, studies: Sequence[Study]) -> dict[str, Any]:
    """Return all results as JSON; only ``seconds`` differs between equal runs."""
    return {
        "versions": versions(),
        "plan": asdict(plan) | {"methods": list(studies[0].methods)},
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
        stripes = " Sample and task level coincide, so that only α + β matters." if study.calibration.coincide else ""
        pictures.append(_save(figure, folder / f"{data.name}-figure-4", f"Figure 4: {grids}{stripes}"))
    return pictures


def _save(figure: "Figure", path: Path, caption: str) -> Picture:
    for ending in ("png", "svg"):
        save_figure(figure, path.with_name(f"{path.name}.{ending}"))
    return Picture(path.with_name(f"{path.name}.png"), caption)
