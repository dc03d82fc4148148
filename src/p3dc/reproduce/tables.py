"""The tables of a study. Nothing is computed here."""

from collections.abc import Sequence

from p3dc.baselines.registry import TABLE_1
from p3dc.evaluation.results import percent, points
from p3dc.reproduce import published
from p3dc.reproduce.claims import Claim, Part
from p3dc.reproduce.experiments import N_QUERY, N_WAY, SHOTS, MethodResult, Study
from p3dc.reproduce.published import Published
from p3dc.reproduce.table1 import P3DC_TITLES, TABLE_3_METHODS, TITLES
from p3dc.reproduce.table1 import rows as table_1_rows
from p3dc.reproduce.tabular import Table, best_cells

OTHER_NETWORK, SAME_NETWORK, FEWER, NOT_THERE = "†", "*", "‡", "◇"
NONE = "—"


def table_1(study: Study) -> Table:
    """Build the comparison of all methods."""
    name = study.data.paper_name
    columns = (f"{N_WAY}-way", "paper,") if name else (f"{N_WAY}-way",)
    header = ["method", *(f"{what} {n_shot}-shot" for n_shot in SHOTS for what in columns)]
    rows: list[list[str]] = []
    own = set()
    group = ""
    for row_group, key in table_1_rows():
        if (key, SHOTS[0]) not in study.table_1:
            continue
        if row_group != group:
            group = row_group
            rows.append([group])
        cells = [TITLES[key] + _marks(study, key)]
        for n_shot in SHOTS:
            cells.append(cell_of(study.table_1[key, n_shot]))
            cells += [paper_cell(published.table_1(name, key, n_shot))] if name else []
        own |= {len(rows)} if key in P3DC_TITLES else set()
        rows.append(cells)
    caption = " ".join([_protocol(study), *_legend(study, rows), *unmeasured(study)])
    return Table(header, rows, caption, f"{study.data.name}-table-1", best_cells(rows), frozenset(own))


def unmeasured(study: Study) -> list[str]:
    """List the reasons why rows were not measured, each with its rows."""
    rows: dict[str, dict[str, None]] = {}
    for (key, _), result in study.table_1.items():
        if result.missing:
            rows.setdefault(result.missing, {})[TITLES[key]] = None
    return [f"{'; '.join(titles)} not measured: {reason}" for reason, titles in rows.items()]


def table_2(study: Study) -> Table:
    """Build the comparison of transformations."""
    keys = [key for key in ("nn", "l2n", "cl2n", "dc-nearest", "p3dc") if (key, 1) in study.table_1]
    rows = [[TITLES[key], cell_of(study.table_1[key, 1])] for key in keys]
    header = ["model", f"{N_WAY}-way 1-shot"]
    if any(published.table_2(study.data.paper_name, key) for key in keys):
        header.append("paper")
        for key, row in zip(keys, rows, strict=True):
            row.append(paper_cell(published.table_2(study.data.paper_name, key)))
    return Table(header, rows, "", f"{study.data.name}-table-2", best_cells(rows), frozenset({len(rows) - 1}))


def table_3(study: Study) -> Table:
    """Build the comparison over ways."""
    ways = sorted({n_way for _, n_way in study.table_3})
    rows: list[list[str]] = []
    ours: set[int] = set()
    theirs: set[int] = set()
    own: set[int] = set()
    for key in (*TABLE_3_METHODS, "p3dc"):
        if (key, ways[0]) not in study.table_3:
            continue
        ours.add(len(rows))
        own |= {len(rows)} if key == "p3dc" else set()
        rows.append([TITLES[key], *(cell_of(study.table_3[key, n_way]) for n_way in ways)])
        printed = [published.table_3(study.data.paper_name, key, n_way) for n_way in ways]
        if any(printed):
            theirs.add(len(rows))
            rows.append([f"{TITLES[key]}, paper", *map(paper_cell, printed)])
    alpha, beta = study.weights[1, "raw"]
    caption = f"1-shot; α = {alpha:g} and β = {beta:g}, selected at {N_WAY} ways, serve for all."
    best = best_cells(rows, sorted(ours)) | best_cells(rows, sorted(theirs))
    header = ["model", *(f"{n_way}-way" for n_way in ways)]
    return Table(header, rows, caption, f"{study.data.name}-table-3", best, frozenset(own))


def table_4(study: Study) -> Table:
    """Build the comparison of prototypes."""
    names = {"mean": "average", "raw": "attentive"}
    rows = [[names[attention], cell_of(result)] for attention, result in study.table_4.items()]
    header = ["prototypes", f"{N_WAY}-way 5-shot"]
    if study.data.paper_name is not None:
        header.append("paper")
        for attention, row in zip(study.table_4, rows, strict=True):
            row.append(paper_cell(published.table_4(study.data.paper_name, attention)))
    return Table(header, rows, "", f"{study.data.name}-table-4", best_cells(rows))


def claims_table(found: Sequence[Claim]) -> Table:
    """Build the list of claims with their differences and verdicts."""
    rows = [
        [claim.text, claim.verdict, _measured(claim), _printed(claim), claim.where]
        for claim in sorted(found, key=lambda claim: claim.verdict == "not measured")
    ]
    caption = (
        "Differences in points with 95 % intervals, paired over the same tasks; cosines and a correlation where that "
        "is said. Where a claim needs several comparisons, the smallest and the largest difference are shown. A claim "
        "holds if every interval lies above zero (for “most”, more than half of them), fails if too many lie "
        "below, and "
        "is not decided otherwise. A negative number of the paper contradicts the paper's own words. Apart from "
        "its own "
        "rows, and TCPR on tieredImageNet, the paper took the numbers of Table 1 from other publications; here all "
        "methods see the same features."
    )
    return Table(["claim", "verdict", "here", "paper", "where"], rows, caption, prose=True)


def parameters_table(study: Study) -> Table:
    """Build the list of what each method was run with."""
    rows = []
    for _, key in table_1_rows():
        results = [study.table_1.get((key, n_shot)) for n_shot in SHOTS]
        if any(result is not None and result.parameters for result in results):
            texts = ["" if result is None else result.parameters for result in results]
            rows.append([TITLES[key], _chosen(study, key), *texts])
    return Table(["method", "parameters", *(f"{n_shot}-shot" for n_shot in SHOTS)], rows, prose=True)


def summary(studies: Sequence[Study]) -> Table:
    """Build a table of all measured rows on all data sets."""
    header = ["method", *(f"{study.data.name}, {n_shot}-shot" for study in studies for n_shot in SHOTS)]
    rows: list[list[str]] = []
    own: set[int] = set()
    for key in (*TABLE_1, *P3DC_TITLES):
        results = [study.table_1.get((key, n_shot)) for study in studies for n_shot in SHOTS]
        if any(result is not None and result.scores is not None for result in results):
            own |= {len(rows)} if key in P3DC_TITLES else set()
            rows.append([TITLES[key], *(NONE if result is None else cell_of(result) for result in results)])
    return Table(header, rows, "", "summary", best_cells(rows), frozenset(own))


def cell_of(result: MethodResult) -> str:
    """Format a measured accuracy."""
    return NONE if result.scores is None else percent(result.scores.mean, result.scores.interval)


def paper_cell(number: Published | None) -> str:
    """Format a printed accuracy."""
    return NONE if number is None else str(number)


def _marks(study: Study, key: str) -> str:
    marks = ""
    if study.data.paper_name is not None:
        if key in published.SAME_NETWORK:
            marks += SAME_NETWORK
        elif key in published.RIVALS:
            marks += OTHER_NETWORK
        elif not any(published.table_1(name, key, n_shot) for name in published.SPLITS for n_shot in SHOTS):
            marks += NOT_THERE
    scores = study.table_1[key, SHOTS[0]].scores
    if scores is not None and len(scores.accuracy) < study.plan.n_tasks:
        marks += FEWER
    return f" {marks}" if marks else ""


def _protocol(study: Study) -> str:
    weights = "; ".join(
        f"{n_shot}-shot ({study.weights[n_shot, 'raw'][0]:g}, {study.weights[n_shot, 'raw'][1]:g})" for n_shot in SHOTS
    )
    return (
        f"Accuracy in percent with 95 % intervals, {study.plan.n_tasks:,} tasks of {N_QUERY} queries a class, the "
        "same for "
        f"all methods; the best of each column is bold. Selected (α, β): {weights}."
    )


def _legend(study: Study, rows: Sequence[Sequence[str]]) -> list[str]:
    """Explain the marks that the table has."""
    texts = {
        OTHER_NETWORK: "the paper's number is from a publication with its own network or training.",
        SAME_NETWORK: "the paper's number is from the method's publication, which uses the same network as the paper.",
        FEWER: f"the first {study.plan.slow_tasks:,} of the same tasks.",
        NOT_THERE: "not in the paper's table.",
    }
    tails = [row[0].rpartition(" ")[2] for row in rows if len(row) > 1]
    found = [f"{mark} {text}" for mark, text in texts.items() if any(mark in tail for tail in tails)]
    if any(NONE in row for row in rows):
        found.append(f"{NONE} not measured or not published.")
    if study.data.paper_name is not None:
        found.append("The paper's MCL-Katz is with PSM, which was never released.")
    return found


def _chosen(study: Study, key: str) -> str:
    """Return where the parameters of a row come from."""
    if key == "p3dc-auto":
        return "follow from the task"
    if key in ("p3dc", "p3dc-unit"):
        return "the paper's" if study.plan.protocol == "release" else "chosen on validation classes"
    return "chosen on validation classes" if key in TABLE_1 and "validation" in TABLE_1[key].needs else "fixed"


def _printed(claim: Claim) -> str:
    printed = [part.printed for part in claim.parts if part.printed is not None]
    if not printed:
        return NONE
    return " to ".join(f"{100 * value:+.2f}" for value in dict.fromkeys((min(printed), max(printed))))


def _measured(claim: Claim) -> str:
    if claim.missing:
        few = len(claim.missing) <= 2
        return f"needs {' and '.join(claim.missing) if few else f'{len(claim.missing)} rows that are not here'}"
    texts = dict.fromkeys(_difference(part, claim.unit) for part in claim.extremes)
    measured = " to ".join(texts) or NONE
    if claim.most:
        verdicts = [part.verdict for part in claim.parts]
        ahead, behind = verdicts.count("holds"), verdicts.count("fails")
        measured = f"ahead of {ahead} of {len(verdicts)}, behind {behind}: {measured}"
    return measured


def _difference(part: Part, unit: str) -> str:
    if unit == "points":
        return points(part.gain, part.interval)
    return f"cosine {part.gain:+.3f} ± {part.interval:.3f}" if unit == "cosine" else f"correlation {part.gain:.2f}"
