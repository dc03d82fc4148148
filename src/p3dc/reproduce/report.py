"""The report: studies as blocks and as JSON. Nothing is computed here."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from p3dc.baselines.deepvoro import N_VIEWS
from p3dc.baselines.registry import TABLE_1
from p3dc.evaluation.results import paired_difference
from p3dc.reproduce import published
from p3dc.reproduce.claims import claims, count
from p3dc.reproduce.datasets import DataSet
from p3dc.reproduce.experiments import N_WAY, SHOTS, MethodResult, Study
from p3dc.reproduce.markup import Block, Bullets, Code, Contents, Heading, Paragraph, Picture
from p3dc.reproduce.provenance import versions
from p3dc.reproduce.published import TIMES, Published
from p3dc.reproduce.references import references
from p3dc.reproduce.table1 import TITLES
from p3dc.reproduce.tables import claims_table, parameters_table, summary, table_1, table_2, table_3, table_4

CANNOT = (
    "The features of the paper's network, a WideResNet trained as S2M2, and those of tieredImageNet are not public "
    "in a form that ships with this project; with them, name the data set with --as and compare levels too. MCL-Katz "
    "needs feature maps from before pooling, which photos have after `p3dc extract --maps`, and its PSM was never "
    "released. "
    "DeepVoro and DeepVoro++ average over views of the images; features without `--views` are one view."
)


def report_blocks(parts: Sequence[tuple[Study, Sequence[Picture]]], made_by: str) -> list[Block]:
    """Build the whole report."""
    studies = [study for study, _ in parts]
    plan = studies[0].plan
    known = any(study.data.paper_name for study in studies)
    compared = (
        " The paper's numbers stand next to the measured ones. They belong to the paper's network: with another one, "
        "compare orderings and gaps, not levels."
    )
    blocks: list[Block] = [
        Heading("P3DC-Shot: the paper's experiments", 1),
        Paragraph(
            f"{plan.n_tasks:,} tasks a row, seed {plan.seed}, protocol “{plan.protocol}”.{compared if known else ''}"
        ),
        Code(made_by),
        Paragraph("Made with " + ", ".join(f"{name} {number}" for name, number in versions().items()) + "."),
        Contents(),
        Heading("Summary"),
        summary(studies),
        Bullets([text for study in studies for text in _ahead(study)]),
    ]
    for study, pictures in parts:
        blocks += study_blocks(study, pictures)
    methods = [key for key in TABLE_1 if any(key in study.methods for study in studies)]
    blocks += [Heading("What cannot be made here"), Paragraph(CANNOT)] if known else []
    blocks += [
        Heading("What differs from the publications"),
        Bullets([f"{TABLE_1[key].title}: {TABLE_1[key].kind.differs}." for key in methods]),
        Heading("References"),
        Bullets(references(methods)),
    ]
    return blocks


def study_blocks(study: Study, pictures: Sequence[Picture]) -> list[Block]:
    """Build the part of the report on one data set."""
    found = claims(study)
    counted: list[Block] = [
        Heading("The paper's claims", 3),
        Paragraph(f"On these features {count(found)}."),
        claims_table(found),
    ]
    return [
        Heading(study.data.name),
        Paragraph(_origin(study)),
        *(counted if found else []),
        Heading("Sample level and task level", 3),
        Paragraph(_levels(study)),
        Paragraph(_centres(study)),
        Heading("Table 1: comparison of methods", 3),
        table_1(study),
        Heading("Table 2: transformations", 3),
        table_2(study),
        Heading("Table 3: more ways", 3),
        table_3(study),
        Heading("Table 4: average and attentive prototypes", 3),
        table_4(study),
        *[block for picture in pictures for block in (Heading(picture.caption.partition(":")[0], 3), picture)],
        Heading("Parameters", 3),
        parameters_table(study),
        Heading("Time", 3),
        Paragraph(_times(study)),
    ]


def _origin(study: Study) -> str:
    """Describe the classes, and how parameters were chosen."""
    data = study.data
    sizes = ", ".join(f"{number} {role}" for role, number in _n_classes(data).items())
    paper = (
        f"It is the paper's {data.paper_name}."
        if data.paper_name
        else "Its classes are not those of a data set of the paper, so the paper's numbers and claims are left out."
    )
    where = "held-out base classes" if data.held_out else "the validation classes"
    chosen = f"α, β and all other parameters were chosen on {where}, never on novel ones."
    if study.plan.protocol == "release":
        chosen = "Tasks and P3DC follow the authors' released scripts, with the paper's α and β."
    elif data.held_out:
        chosen = f"There are no validation features: {chosen}"
    return f"Classes: {sizes}. {data.base.features.shape[1]:,} features. {paper} {chosen}"


def _ahead(study: Study) -> list[str]:
    """Name the methods that are ahead of P3DC with selected weights, by more than the interval."""
    lines = []
    for n_shot in SHOTS:
        ours = study.table_1["p3dc", n_shot].scores
        names = []
        for key in study.methods:
            theirs = study.table_1[key, n_shot].scores
            if ours is not None and theirs is not None:
                gain, interval = paired_difference(theirs, ours)
                names += [TITLES[key]] if gain > interval else []
        listed = ", ".join(names) or "none of the compared methods"
        lines.append(
            f"Ahead of {TITLES['p3dc']} by more than the interval of the paired difference, on {study.data.name} with "
            f"{n_shot} {'shot' if n_shot == 1 else 'shots'}: {listed}."
        )
    return lines


def _levels(study: Study) -> str:
    """Describe the softmax of Eq. 6, and what follows for the two levels."""
    found = study.calibration
    weights = "; ".join(
        f"{level} level, {each.n_priors:.1f} base classes: largest weight {each.largest:.2f}, entropy "
        f"{each.entropy:.2f} of "
        f"{np.log(each.n_priors):.2f} nats"
        for level, each in found.weights.items()
    )
    follows = (
        "The softmax is nearly one-hot: whichever base classes it may choose from, one of them takes nearly all the "
        "weight. Sample level and task level therefore coincide: s and t have a cosine of "
        f"{found.agreement:.3f}, the rows (1, 0) and (0, 1) agree, and Figure 4 depends on α + β only. Features "
        "that are "
        "multiplied by a smaller scale would separate them."
        if found.coincide
        else f"The two levels differ: the cosine of s and t is {found.agreement:.3f} on average."
    )
    n_samples = len(found.cosines["before"]) * N_WAY
    return f"Eq. 6 over {n_samples:,} support samples of one-shot tasks: {weights}. {follows}"


def _centres(study: Study) -> str:
    """Describe where calibration moves samples."""
    found = study.calibration
    mean = {key: float(np.mean(values)) for key, values in found.cosines.items()}
    return (
        f"The mean cosine of a support sample to the centre of its class is {mean['before']:.3f} before calibration, "
        f"{mean['p3dc']:.3f} with P3DC and {mean['dc']:.3f} with DC; P3DC moves {100 * found.away['p3dc']:.1f} % "
        "of the "
        f"samples away from it, DC {100 * found.away['dc']:.1f} %. What counts for a label is whether that centre "
        "is the "
        f"nearest of the task: it is for {100 * found.nearest['before']:.1f} % before, "
        f"{100 * found.nearest['p3dc']:.1f} % "
        f"with P3DC and {100 * found.nearest['dc']:.1f} % with DC."
    )


def _times(study: Study) -> str:
    spent = {name: f"{1000 * seconds:.2f} ms" for name, seconds in study.seconds.items()}
    paper = f"The paper's times are {1000 * TIMES['calibrate']:.0f} and {1000 * TIMES['classify']:.0f} ms."
    return (
        f"Medians over single 5-way 5-shot tasks, one after the other on one thread: {spent['calibrate']} to "
        "calibrate the "
        f"support and {spent['classify']} to classify the queries; DeepVoro with its {N_VIEWS} views takes "
        f"{spent['deepvoro']}. {paper}"
    )


def study_json(study: Study) -> dict[str, Any]:
    """Return the results of one data set as JSON, without times."""
    data = study.data
    calibration = asdict(study.calibration)
    means = {key: float(np.mean(values)) for key, values in study.calibration.cosines.items()}
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
        "calibration": {key: calibration[key] for key in ("weights", "agreement", "nearest", "away")}
        | {"cosines": means},
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
