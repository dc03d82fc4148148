"""The report: studies as tables, sentences and JSON. Nothing is computed here."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import p3dc
from p3dc.baselines.registry import TABLE_1
from p3dc.evaluation.results import percent
from p3dc.reproduce import published
from p3dc.reproduce.claims import claims
from p3dc.reproduce.datasets import DataSet
from p3dc.reproduce.experiments import N_QUERY, N_WAY, SHOTS, MethodResult, Study
from p3dc.reproduce.markup import Block, Bullets, Heading, Paragraph, Picture, Table
from p3dc.reproduce.published import OWN_FEATURES, TIMES, Published
from p3dc.reproduce.table1 import TITLES
from p3dc.reproduce.table1 import rows as table_1_rows

OTHER_FEATURES, FEWER, NOT_THERE = "†", "‡", "◇"


def table_1(study: Study) -> Table:
    """Build the comparison of all methods."""
    name = study.data.paper_name
    header = ["method", *(f"{what} {n_shot}-shot" for n_shot in SHOTS for what in (f"{N_WAY}-way", "paper,"))]
    rows: list[list[str]] = []
    strong = set()
    group = ""
    missing = []
    for row_group, key in table_1_rows():
        if (key, SHOTS[0]) not in study.table_1:
            continue
        if row_group != group:
            group = row_group
            rows.append([group])
        cells = [TITLES[key] + _marks(study, key)]
        for n_shot in SHOTS:
            result = study.table_1[key, n_shot]
            cells += [_cell(result), _paper(published.table_1(name, key, n_shot))]
            if result.missing and result.missing not in missing:
                missing.append(result.missing)
        if key in ("p3dc", "p3dc-unit"):
            strong.add(len(rows))
        rows.append(cells)
    weights = "; ".join(
        f"{n_shot}-shot ({study.weights[n_shot, 'raw'][0]:g}, {study.weights[n_shot, 'raw'][1]:g})" for n_shot in SHOTS
    )
    caption = (
        f"Accuracy in percent with 95 % intervals, {study.plan.n_tasks:,} tasks of {N_QUERY} queries a class, the same "
        f"for all methods. Selected (α, β): {weights}. "
        f"{OTHER_FEATURES} the paper's number is from a publication with its own network or training. "
        f"{FEWER} the first {study.plan.slow_tasks:,} of the same tasks. {NOT_THERE} not in the paper's table. "
        "— not measured or not published; the paper's MCL-Katz is with PSM. " + " ".join(missing)
    )
    return Table(header, rows, caption.strip(), frozenset(strong))


def table_2(study: Study) -> Table:
    """Build the comparison of transformations."""
    rows = [
        [TITLES[key], _cell(study.table_1[key, 1]), _paper(published.table_2(study.data.paper_name, key))]
        for key in ("nn", "l2n", "cl2n", "dc-nearest", "p3dc")
        if (key, 1) in study.table_1
    ]
    return Table(["model", "5-way 1-shot", "paper"], rows, "", frozenset({len(rows) - 1}))


def table_3(study: Study) -> Table:
    """Build the comparison over ways."""
    ways = sorted({n_way for _, n_way in study.table_3})
    rows = []
    for key in ("restorenet", "l2n", "cl2n", "p3dc"):
        if (key, ways[0]) not in study.table_3:
            continue
        rows.append([TITLES[key], *(_cell(study.table_3[key, n_way]) for n_way in ways)])
        printed = [published.table_3(study.data.paper_name, key, n_way) for n_way in ways]
        if any(number is not None for number in printed):
            rows.append(["   paper", *map(_paper, printed)])
    alpha, beta = study.weights[1, "raw"]
    caption = f"1-shot; α = {alpha:g} and β = {beta:g}, selected at 5 ways, serve for all."
    return Table(["model", *(f"{n_way}-way" for n_way in ways)], rows, caption)


def table_4(study: Study) -> Table:
    """Build the comparison of prototypes."""
    names = {"mean": "average", "raw": "attentive"}
    rows = [
        [names[attention], _cell(result), _paper(published.table_4(study.data.paper_name, attention))]
        for attention, result in study.table_4.items()
    ]
    return Table(["prototypes", "5-way 5-shot", "paper"], rows)


def study_blocks(study: Study, pictures: Sequence[Picture]) -> list[Block]:
    """Build the part of the report on one data set."""
    data = study.data
    sizes = ", ".join(f"{count} {role}" for role, count in _n_classes(data).items())
    paper = (
        f"It has the classes of the paper's {data.paper_name}."
        if data.paper_name
        else "It is not one of the paper's data sets."
    )
    where = "held-out base classes" if data.held_out else "the validation classes"
    chosen = f"α, β and all other parameters were chosen on {where}, never on novel ones."
    chosen = f"There are no validation features: {chosen}" if data.held_out else chosen
    if study.plan.protocol == "release" and data.paper_name:
        chosen = "Tasks and P3DC follow the authors' released scripts, with the paper's α and β."
    times = ", ".join(
        f"{name} {1000 * study.seconds[name]:.2f} ms (paper {1000 * TIMES[name]:.0f} ms)" for name in TIMES
    )
    together = f"{1000 * study.seconds['together']:.2f} ms a task for both when many tasks are scored together"
    checked = claims(study)
    failed = [str(claim) for claim in checked if claim.verdict != "holds"]
    borrowed = "" if data.paper_name else " on miniImageNet"
    return [
        Heading(data.name),
        Paragraph(f"Classes: {sizes}. {data.base.features.shape[1]} features. {paper} {chosen}"),
        Heading("What holds", 3),
        Paragraph(
            f"Of {len(checked)} orderings that the paper's numbers have{borrowed}, {len(checked) - len(failed)} hold "
            "on these features." + (" These do not, or are too close to decide:" if failed else "")
        ),
        *([Bullets(failed)] if failed else []),
        Heading("Table 1: comparison of methods", 3),
        table_1(study),
        Heading("Table 2: transformations", 3),
        table_2(study),
        Heading("Table 3: more ways", 3),
        table_3(study),
        Heading("Table 4: average and attentive prototypes", 3),
        table_4(study),
        *[block for picture in pictures for block in (Heading(picture.caption.partition(":")[0], 3), picture)],
        Heading("Time", 3),
        Paragraph(f"One 5-way 5-shot task on one thread: {times}; {together}."),
    ]


def report_blocks(parts: Sequence[tuple[Study, Sequence[Picture]]]) -> list[Block]:
    """Build the whole report."""
    plan = parts[0][0].plan
    blocks: list[Block] = [
        Heading("P3DC-Shot: the paper's experiments", 1),
        Paragraph(
            f"Made by p3dc {p3dc.__version__} with {plan.n_tasks:,} tasks, seed {plan.seed}, "
            f"protocol “{plan.protocol}”. The paper's numbers stand next to the measured ones where the data set has "
            "the same classes. They belong to the paper's network: with another one, compare orderings and gaps, not "
            "levels."
        ),
        Heading("Summary"),
        summary(parts),
    ]
    for study, pictures in parts:
        blocks += study_blocks(study, pictures)
    differences = [f"{method.title}: {method.kind.differs}." for method in TABLE_1.values()]
    blocks += [Heading("What differs from the publications"), Bullets(differences)]
    return blocks


def summary(parts: Sequence[tuple[Study, Sequence[Picture]]]) -> Table:
    """Build a table of the main rows on all data sets."""
    header = ["method", *(f"{study.data.name}, {n_shot}-shot" for study, _ in parts for n_shot in SHOTS)]
    keys = [*TABLE_1, "p3dc-0-0", "p3dc", "p3dc-unit"]
    rows = []
    for key in keys:
        cells = [study.table_1.get((key, n_shot)) for study, _ in parts for n_shot in SHOTS]
        if any(cell is not None and cell.scores is not None for cell in cells):
            rows.append([TITLES[key], *("—" if cell is None else _cell(cell) for cell in cells)])
    strong = frozenset(i for i, row in enumerate(rows) if row[0] in (TITLES["p3dc"], TITLES["p3dc-unit"]))
    return Table(header, rows, "", strong)


def study_json(study: Study) -> dict[str, Any]:
    """Return the results of one data set as JSON, without times."""
    data = study.data
    return {
        "data": {
            "name": data.name,
            "paper_name": data.paper_name,
            "fingerprint": data.fingerprint,
            "classes": _n_classes(data),
            "validation_held_out_of_base": data.held_out,
        },
        "selected": [
            {"n_shot": n_shot, "attention": attention, "alpha": alpha, "beta": beta}
            for (n_shot, attention), (alpha, beta) in study.weights.items()
        ],
        "table_1": [
            _entry(key, result, published.table_1(data.paper_name, key, n_shot)) | {"n_shot": n_shot}
            for (key, n_shot), result in study.table_1.items()
        ],
        "table_3": [
            _entry(key, result, published.table_3(data.paper_name, key, n_way)) | {"n_way": n_way}
            for (key, n_way), result in study.table_3.items()
        ],
        "table_4": [
            _entry(attention, result, published.table_4(data.paper_name, attention))
            for attention, result in study.table_4.items()
        ],
        "claims": [asdict(claim) | {"verdict": claim.verdict} for claim in claims(study)],
        "figure_4": {
            name: {column: getattr(grid, column).tolist() for column in ("alpha", "beta", "accuracy")}
            for name, grid in (("validation", study.choices[1, "raw"]), ("novel", study.novel_grid))
            if grid is not None
        },
    }


def _n_classes(data: DataSet) -> dict[str, int]:
    return {role: len(getattr(data, role).class_names) for role in ("base", "validation", "novel")}


def _entry(key: str, result: MethodResult, number: Published | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"key": key, "title": TITLES.get(key, key)}
    if result.scores is None:
        entry["missing"] = result.missing
    else:
        scores = result.scores
        entry |= {"mean": scores.mean, "interval": scores.interval, "n_tasks": len(scores.accuracy)}
        entry["parameters"] = result.parameters
    entry["published"] = None if number is None else number._asdict()
    return entry


def _marks(study: Study, key: str) -> str:
    marks = ""
    if key in OWN_FEATURES:
        marks += OTHER_FEATURES
    scores = study.table_1[key, SHOTS[0]].scores
    if scores is not None and len(scores.accuracy) < study.plan.n_tasks:
        marks += FEWER
    if all(published.table_1(name, key, n_shot) is None for name in ("miniImageNet", "CUB") for n_shot in SHOTS):
        marks += NOT_THERE
    return f" {marks}" if marks else ""


def _cell(result: MethodResult) -> str:
    return "—" if result.scores is None else percent(result.scores.mean, result.scores.interval)


def _paper(number: Published | None) -> str:
    return "—" if number is None else str(number)
