"""Results as tables for people and as JSON for machines. Nothing is computed here."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from p3dc.evaluation import Comparison, percent
from p3dc.experiment import Experiment, Protocol
from p3dc.selection import SearchResult

REFERENCE = "L2N"


def experiment_table(experiments: Sequence[Experiment]) -> Table:
    """One row a method; for each shot the accuracy and, where L2N is among the methods, the paired gain over it."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("method")
    for experiment in experiments:
        table.add_column(shots(experiment.n_shot), justify="right")
        if _has_reference(experiment.comparison):
            table.add_column(f"gain over {REFERENCE}", justify="right")
    for name in experiments[0].comparison.scores:
        cells = [name]
        for experiment in experiments:
            scores = experiment.comparison.scores[name]
            cells.append(percent(scores.mean, scores.interval))
            if _has_reference(experiment.comparison):
                gain = experiment.comparison.difference(name, REFERENCE)
                cells.append("" if name == REFERENCE else f"{100 * gain.mean:+.2f} ± {100 * gain.interval:.2f}")
        table.add_row(*cells, style="bold" if name.startswith("P3DC") else None)
    return table


def choice_lines(experiments: Sequence[Experiment]) -> list[str]:
    """Say which weights the P3DC rows used."""
    lines = []
    for experiment in experiments:
        for name, choice in experiment.choices.items():
            weights = f"α = {choice.alpha:g}, β = {choice.beta:g} ({choice.origin})"
            lines.append(f"{name}, {shots(experiment.n_shot)}: {weights}")
    return lines


def experiments_json(protocol: Protocol, experiments: Sequence[Experiment]) -> dict[str, Any]:
    """Everything that was measured, for machines."""
    return {
        "protocol": {**asdict(protocol), "interval": "half width, 95 %"},
        "results": [
            {
                "n_shot": experiment.n_shot,
                "methods": [
                    _method_json(experiment, name, with_gain=_has_reference(experiment.comparison))
                    for name in experiment.comparison.scores
                ],
            }
            for experiment in experiments
        ],
    }


def search_table(result: SearchResult, n_best: int = 10) -> Table:
    """List the best points of a grid."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("α", "β", "accuracy"):
        table.add_column(heading, justify="right")
    for point in result.ranked(n_best):
        table.add_row(f"{point.alpha:.6g}", f"{point.beta:.6g}", percent(point.accuracy, point.interval))
    return table


def search_json(result: SearchResult) -> dict[str, Any]:
    """Return the whole grid, for machines."""
    return {
        "best": result.best._asdict(),
        "n_tasks": result.n_tasks,
        "settings": result.settings,
        "grid": {name: getattr(result, name).tolist() for name in ("alpha", "beta", "accuracy", "interval")},
    }


def _method_json(experiment: Experiment, name: str, *, with_gain: bool) -> dict[str, Any]:
    scores = experiment.comparison.scores[name]
    entry: dict[str, Any] = {"name": name, "mean": scores.mean, "interval": scores.interval}
    if with_gain and name != REFERENCE:
        gain = experiment.comparison.difference(name, REFERENCE)
        entry["gain_over_l2n"] = {"mean": gain.mean, "interval": gain.interval}
    choice = experiment.choices.get(name)
    if choice is not None:
        entry |= {"alpha": choice.alpha, "beta": choice.beta, "origin": choice.origin}
        entry["search"] = None if choice.search is None else search_json(choice.search)
    return entry


def _has_reference(comparison: Comparison) -> bool:
    return REFERENCE in comparison.scores and len(comparison.scores) > 1


def shots(n_shot: int) -> str:
    """Say how many shots."""
    return "1 shot" if n_shot == 1 else f"{n_shot} shots"
