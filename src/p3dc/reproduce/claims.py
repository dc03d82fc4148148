"""The claims that the paper makes about its results, in words or in numbers, and whether they hold on these features.

Each claim counts once, however many comparisons it needs. A data set that is not the paper's has no claims.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from p3dc.evaluation.results import TaskScores, half_width, paired_difference
from p3dc.reproduce import published
from p3dc.reproduce.experiments import SHOTS, Study
from p3dc.reproduce.published import PREFERENCES, Published
from p3dc.reproduce.table1 import TITLES

Verdict = Literal["holds", "fails", "not decided", "not measured"]
VERDICTS: tuple[Verdict, ...] = ("holds", "fails", "not decided", "not measured")

COMPARABLE = 0.01
"""How far behind a method may be, as a fraction, to be comparable."""

COSINE = 0.0005
"""The smallest difference of cosines that is not printed as zero."""

TRAINED = (
    "relationnet",
    "anil",
    "leo",
    "metaoptnet-svm",
    "baseline++",
    "negative-cosine",
    "s2m2",
    "restorenet",
    "dc",
    "tcpr",
)
"""Methods of Table 1 that need additional learning steps."""

BEFORE_DC = ("anil", "leo", "metaoptnet-svm", "baseline++", "s2m2")
"""Methods of Table 1 that the paper's introduction says DC is ahead of."""


@dataclass(frozen=True)
class Part:
    """One comparison of a claim: a difference that must be positive."""

    text: str
    gain: float
    interval: float  # half the width of the 95 % interval of the gain
    margin: float = 0.0  # how far below zero the gain may be
    printed: float | None = None  # the gain in the paper's numbers
    resolution: float = 0.00005  # what is printed as zero decides nothing, however narrow its interval

    @property
    def verdict(self) -> Verdict:
        """Whether the whole interval lies on one side, and on which."""
        if abs(self.gain + self.margin) <= max(self.interval, self.resolution):
            return "not decided"
        return "holds" if self.gain + self.margin > 0 else "fails"


@dataclass(frozen=True)
class Claim:
    """One claim of the paper."""

    text: str
    where: str
    parts: tuple[Part, ...]
    most: bool = False  # whether most parts suffice; otherwise all must hold
    unit: Literal["points", "cosine", "correlation"] = "points"
    missing: tuple[str, ...] = ()  # rows that the claim needs and that were not measured

    @property
    def verdict(self) -> Verdict:
        """Whether the parts hold; without all of them, the claim is not measured."""
        if self.missing or not self.parts:
            return "not measured"
        found = [part.verdict for part in self.parts]
        enough = len(found) // 2 + 1 if self.most else len(found)
        if found.count("holds") >= enough:
            return "holds"
        return "fails" if len(found) - found.count("fails") < enough else "not decided"

    @property
    def extremes(self) -> tuple[Part, ...]:
        """The part with the smallest gain and the one with the largest."""
        ranked = sorted(self.parts, key=lambda part: part.gain + part.margin)
        return (ranked[0], ranked[-1]) if len(ranked) > 1 else tuple(ranked)


def count(found: Sequence[Claim]) -> str:
    """Count the claims by their verdicts, in words."""
    numbers = {verdict: sum(claim.verdict == verdict for claim in found) for verdict in VERDICTS}
    words: dict[Verdict, str] = {"fails": "fail", "not decided": "are not decided", "not measured": "were not measured"}
    others = [f"{numbers[verdict]} {word}" for verdict, word in words.items() if numbers[verdict]]
    return ", ".join([f"{numbers['holds']} of the paper's {len(found)} claims hold", *others])


def claims(study: Study) -> list[Claim]:
    """List the claims of the paper about the data set, each with its measured differences."""
    if study.data.paper_name is None:
        return []
    source = _Source(study, study.data.paper_name)
    return [*_against_others(source), *_of_calibration(source), *_of_ablations(source)]


@dataclass(frozen=True)
class _Source:
    study: Study
    name: str

    def claim(
        self,
        text: str,
        where: str,
        pairs: Iterable[tuple[str, str, int]],
        *,
        margin: float = 0.0,
        most: bool = False,
    ) -> Claim:
        """Make a claim of pairs of rows of Table 1, the better one first, each with its shots."""
        pairs = list(pairs)
        rows = {(key, n_shot): self.study.table_1.get((key, n_shot)) for *keys, n_shot in pairs for key in keys}
        scores = {
            row: result.scores for row, result in rows.items() if result is not None and result.scores is not None
        }
        missing = tuple(dict.fromkeys(TITLES[key] for key, n_shot in rows if (key, n_shot) not in scores))
        parts = [
            self._part(one, two, n_shot, scores[one, n_shot], scores[two, n_shot], margin)
            for one, two, n_shot in pairs
            if (one, n_shot) in scores and (two, n_shot) in scores
        ]
        return Claim(text, where, tuple(parts), most, missing=missing)

    def printed(self, key: str, n_shot: int) -> Published | None:
        """Return the paper's number for a row of Table 1 or 2."""
        return published.table_1(self.name, key, n_shot) or (published.table_2(self.name, key) if n_shot == 1 else None)

    def _part(self, one: str, two: str, n_shot: int, first: TaskScores, second: TaskScores, margin: float) -> Part:
        numbers = (self.printed(one, n_shot), self.printed(two, n_shot))
        text = f"{TITLES[one]} − {TITLES[two]}, {n_shot}-shot"
        return Part(text, *paired_difference(first, second), margin, _printed_gain(*numbers))


def _printed_gain(one: Published | None, two: Published | None) -> float | None:
    return None if one is None or two is None else (one.mean - two.mean) / 100


def _against_others(source: _Source) -> list[Claim]:
    """Claims against other methods: Table 1 and the text about it."""
    made = [key for key in published.RIVALS if key != published.NOT_MADE]
    rivals = {n_shot: [key for key in made if source.printed(key, n_shot)] for n_shot in SHOTS}
    found = [
        source.claim(
            "With one shot the best results outperform most methods",
            "Section 4.3",
            [("p3dc", key, 1) for key in rivals[1]],
            most=True,
        ),
        source.claim(
            "With five shots they are comparable to DeepVoro and DC: less than a point behind",
            "Section 4.3",
            [("p3dc", key, 5) for key in ("deepvoro", "dc")],
            margin=COMPARABLE,
        ),
        source.claim(
            "P3DC outperforms methods that need additional learning, or is less than a point behind",
            "Abstract",
            [("p3dc", key, n_shot) for n_shot in SHOTS for key in TRAINED if key in rivals[n_shot]],
            margin=COMPARABLE,
        ),
    ]
    for n_shot in SHOTS:
        for key in published.SAME_NETWORK:
            ours, theirs = source.printed("p3dc", n_shot), source.printed(key, n_shot)
            if ours is None or theirs is None or ours.mean == theirs.mean:
                continue
            one, two = ("p3dc", key) if ours.mean > theirs.mean else (key, "p3dc")
            names = [TITLES[each] if each == key else "P3DC" for each in (one, two)]
            found.append(
                source.claim(f"{names[0]} is ahead of {names[1]}, {n_shot}-shot", "Table 1", [(one, two, n_shot)])
            )
    superior = [("dc", key, n_shot) for n_shot in SHOTS for key in BEFORE_DC]
    found.append(source.claim("DC is ahead of MAML, LEO, DCO, Baseline++ and S2M2_R", "Section 1", superior))
    return found


def _of_calibration(source: _Source) -> list[Claim]:
    """Claims about calibration: the P3DC rows of Table 1, Tables 2 and 3, and Figure 3."""
    fixed = ("p3dc-0-0", "p3dc-1-0", "p3dc-0-1", "p3dc-third")
    return [
        source.claim(
            "Without calibration (α = β = 0) P3DC is ahead of SimpleShot",
            "Section 4.3",
            [("p3dc-0-0", "simpleshot", n_shot) for n_shot in SHOTS],
        ),
        *(
            source.claim(
                f"{level} calibration alone is better than none",
                "Section 4.3",
                [(key, "p3dc-0-0", n_shot) for n_shot in SHOTS],
            )
            for level, key in (("Sample-level", "p3dc-1-0"), ("Task-level", "p3dc-0-1"))
        ),
        source.claim(
            "The task level is ahead of the sample level",
            "Table 1",
            [("p3dc-0-1", "p3dc-1-0", n_shot) for n_shot in SHOTS],
        ),
        source.claim(
            "The selected α and β improve on all four fixed ones",
            "Section 4.3",
            [("p3dc", key, n_shot) for n_shot in SHOTS for key in fixed],
        ),
        source.claim(
            "Normalisation or calibration improves plain NN, 1-shot",
            "Table 2",
            [(key, "nn", 1) for key in ("l2n", "cl2n", "dc-nearest", "p3dc")],
        ),
        source.claim(
            "P3DC is ahead of NN, L2N, CL2N and DC + L2N + NN, 1-shot",
            "Table 2",
            [("p3dc", key, 1) for key in ("nn", "l2n", "cl2n", "dc-nearest")],
        ),
        *_over_ways(source),
        *_centres(source.study),
    ]


def _over_ways(source: _Source) -> list[Claim]:
    """Claims about more ways; Table 3 covers miniImageNet only. Five ways are those of Table 2."""
    study = source.study
    ways = sorted({n_way for _, n_way in study.table_3})
    more = [n_way for n_way in ways if n_way != 5]
    if published.table_3(source.name, "p3dc", 5) is None or not more:
        return []
    found = []
    for text, rivals in (("L2N and CL2N", ("l2n", "cl2n")), ("RestoreNet", ("restorenet",))):
        parts, missing = [], []
        for key in rivals:
            for n_way in more:
                ours, theirs = (
                    study.table_3["p3dc", n_way].scores,
                    getattr(study.table_3.get((key, n_way)), "scores", None),
                )
                if ours is None or theirs is None:
                    missing.append(TITLES[key])
                    continue
                numbers = [published.table_3(source.name, each, n_way) for each in ("p3dc", key)]
                gain, interval = paired_difference(ours, theirs)
                parts.append(Part(f"{TITLES[key]}, {n_way}-way", gain, interval, printed=_printed_gain(*numbers)))
        found.append(
            Claim(
                f"P3DC is ahead of {text} at every number of ways",
                "Table 3",
                tuple(parts),
                missing=tuple(dict.fromkeys(missing)),
            )
        )
    harder = []
    for few, many in pairwise(ways):
        one, two = study.table_3["p3dc", few].scores, study.table_3["p3dc", many].scores
        if one is not None and two is not None:  # other tasks, so that their variances add up
            gain, interval = one.mean - two.mean, float(np.hypot(one.interval, two.interval))
            printed = [published.table_3(source.name, "p3dc", n_way) for n_way in (few, many)]
            harder.append(Part(f"{few}-way − {many}-way", gain, interval, printed=_printed_gain(*printed)))
    return [*found, Claim("More ways are harder", "Section 4.3", tuple(harder))]


def _centres(study: Study) -> list[Claim]:
    """Claims about where samples move, which the paper illustrates with Figures 1 and 3."""
    cosines = {key: np.array(values) for key, values in study.calibration.cosines.items()}
    closer = "closer to the centre of their class"
    nearby = "Near a boundary the task level brings samples closer to their centre than the sample level"
    found = []
    for text, where, gain in (
        (f"Calibration moves samples {closer}", "Figure 3", cosines["p3dc"] - cosines["before"]),
        (f"P3DC moves samples {closer} than DC does", "Figure 3", cosines["p3dc"] - cosines["dc"]),
        (nearby, "Section 3.2", np.array(study.calibration.boundary)),
    ):
        parts = [Part("cosine", float(gain.mean()), half_width(gain), resolution=COSINE)] if len(gain) else []
        found.append(Claim(text, where, tuple(parts), unit="cosine"))
    return found


def _of_ablations(source: _Source) -> list[Claim]:
    """Claims of the ablations: Figure 4 and Table 4."""
    study = source.study
    found = [
        source.claim(
            "Both levels combined (α = β = 1/3) are ahead of either alone, 1-shot",
            "Section 1",
            [("p3dc-third", key, 1) for key in ("p3dc-1-0", "p3dc-0-1")],
        )
    ]
    if source.name in PREFERENCES:
        other = next(name for name in PREFERENCES if name != source.name)
        own, theirs = study.preferred[source.name].scores, study.preferred[other].scores
        if own is not None and theirs is not None:
            about, instead = (0.9, 0.6) if source.name == "miniImageNet" else (0.6, 0.9)
            part = Part("", *paired_difference(own, theirs))
            found.append(Claim(f"α + β of about {about} is better than of about {instead}", "Figure 4", (part,)))
    validation = study.choices[1, "raw"]
    if validation is not None:
        both = np.corrcoef(validation.accuracy, study.novel_grid.accuracy)[0, 1]
        part = Part(f"over {len(validation.accuracy)} points", float(both), 0.0, margin=-0.5)
        text = "Over α and β, novel classes follow validation classes: a correlation above 0.5"
        found.append(Claim(text, "Figure 4", (part,), unit="correlation"))
    one, two = study.table_4["raw"].scores, study.table_4["mean"].scores
    if one is not None and two is not None:
        numbers = [published.table_4(source.name, kind) for kind in ("raw", "mean")]
        part = Part("", *paired_difference(one, two), printed=_printed_gain(*numbers))
        found.append(Claim("Attentive prototypes are ahead of averages, 5-shot", "Table 4", (part,)))
    return found
