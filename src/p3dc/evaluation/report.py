"""Results as tables and as JSON. Nothing is computed here."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from p3dc.evaluation.protocol import EvaluationPlan, EvaluationResult
from p3dc.evaluation.results import Comparison, Difference, left_out_lines, percent, points
from p3dc.evaluation.search import SearchResult

REFERENCE = "L2N"


def results_table(results: Sequence[EvaluationResult]) -> Table:
    """Build one row for each method: for each shot its accuracy, its paired gain over L2N, and its ECE and AUROC."""
    table = _plain_table()
    table.add_column("method")
    columns = [_columns(result) for result in results]
    for parts in columns:
        for heading in parts:
            table.add_column(heading, justify="right")
    for name in results[0].comparison.scores:
        cells = [cell(name) for parts in columns for cell in parts.values()]
        table.add_row(name, *cells, style="bold" if name.startswith("P3DC") else None)
    return table


def _columns(result: EvaluationResult) -> dict[str, Callable[[str], str]]:
    """Map the heading of each column of one shot to the function that writes its cell for a method."""
    comparison = result.comparison
    scores = comparison.scores

    def gain(name: str) -> str:
        found = comparison.difference(name, REFERENCE)
        return "" if name == REFERENCE else points(found.mean, found.interval)

    def error(name: str) -> str:
        found = scores[name].calibration_error
        return "" if found is None else f"{found:.3f}"

    def auroc(name: str) -> str:
        found = scores[name].auroc
        return "" if found is None else f"{found.mean():.3f}"

    columns = {shots(result.n_shot): lambda name: percent(scores[name].mean, scores[name].interval)}
    if _has_reference(comparison):
        columns[f"gain over {REFERENCE}"] = gain
    if any(one.calibration_error is not None for one in scores.values()):
        columns["ECE"] = error
    if any(one.auroc is not None for one in scores.values()):
        columns["AUROC"] = auroc
    return columns


def choice_lines(results: Sequence[EvaluationResult]) -> list[str]:
    """Write a line on the weights of each P3DC row, and one on the rows that are left out."""
    lines = []
    for result in results:
        for name, choice in result.choices.items():
            point = "α, β and scale" if choice.alpha is None else f"α = {choice.alpha:g}, β = {choice.beta:g}"
            lines.append(f"{name}, {shots(result.n_shot)}: {point} ({choice.origin})")
    return lines + left_out_lines(results[0].comparison.left_out)


def results_json(plan: EvaluationPlan, results: Sequence[EvaluationResult]) -> dict[str, Any]:
    """Return the plan and every result as JSON."""
    return {
        "protocol": {**asdict(plan), "interval": "half width, 95 %"},
        "results": [
            {
                "n_shot": result.n_shot,
                "left_out": dict(result.comparison.left_out),
                "methods": [
                    _method_json(result, name, with_gain=_has_reference(result.comparison))
                    for name in result.comparison.scores
                ],
            }
            for result in results
        ],
    }


def search_table(result: SearchResult, n_best: int = 10) -> Table:
    """List the best points of a grid."""
    table, rows = _plain_table(), result.table(n_best)
    for heading in rows[0]:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row.values())
    return table


def outside_line(outside: Difference) -> str:
    """Write a line on whether the best point outside the triangle is better than the best inside."""
    gain = f"{points(outside.mean, outside.interval)} points"
    finding = "is better" if outside.mean > outside.interval else "is not surely better"
    return f"outside the triangle {finding}: best outside less best inside {gain} (95 % CI, paired, on fresh tasks)"


def search_json(result: SearchResult, outside: Difference | None = None) -> dict[str, Any]:
    """Return the whole grid as JSON."""
    gain = None if outside is None else {"mean": outside.mean, "interval": outside.interval}
    return result.to_dict() | {"gain_outside": gain}


def _method_json(result: EvaluationResult, name: str, *, with_gain: bool) -> dict[str, Any]:
    scores = result.comparison.scores[name]
    entry: dict[str, Any] = {"name": name, **scores.summary()}
    if with_gain and name != REFERENCE:
        gain = result.comparison.difference(name, REFERENCE)
        entry["gain_over_l2n"] = {"mean": gain.mean, "interval": gain.interval}
    choice = result.choices.get(name)
    if choice is not None:
        entry |= {"alpha": choice.alpha, "beta": choice.beta, "origin": choice.origin}
        entry["search"] = None if choice.search is None else search_json(choice.search)
    return entry


def _has_reference(comparison: Comparison) -> bool:
    return REFERENCE in comparison.scores and len(comparison.scores) > 1


def shots(n_shot: int) -> str:
    """Write the number of shots."""
    return "1 shot" if n_shot == 1 else f"{n_shot} shots"


def _plain_table() -> Table:
    return Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
