"""What the paper says of its tables, and whether it holds on these features: sentences made from the numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from p3dc.evaluation.evaluate import paired
from p3dc.reproduce import published
from p3dc.reproduce.published import Published
from p3dc.reproduce.rows import TITLES
from p3dc.reproduce.study import Measured, Study


@dataclass(frozen=True)
class Claim:
    """One ordering of the paper.

    Attributes
    ----------
    text : str
        What the paper says.
    gain, interval : float
        The paired difference that it is about, and half the width of its 95 % interval.
    """

    text: str
    gain: float
    interval: float

    @property
    def verdict(self) -> str:
        """Whether the whole interval lies on one side of zero, and on which."""
        if abs(self.gain) <= self.interval:
            return "not decided"
        return "holds" if self.gain > 0 else "does not hold"

    def __str__(self) -> str:
        return f"{self.text}: {self.verdict} ({100 * self.gain:+.2f} ± {100 * self.interval:.2f} points)."


RIVALS = ("p3dc-0-0", "nn", "l2n", "cl2n", "dc-nearest", "s2m2", "deepvoro", "deepvoro++", "dc", "tcpr")
"""Rows that the paper measured on the same features as its own method."""


def claims(study: Study) -> list[Claim]:
    """Check the orderings that the paper's numbers have, on its data set of the same classes or on miniImageNet."""
    name = study.data.paper_name or "miniImageNet"
    found = []
    for n_shot in (1, 5):
        for rival in RIVALS:
            ours = published.table_1(name, "p3dc", n_shot)
            theirs = published.table_1(name, rival, n_shot) or (published.table_2(name, rival) if n_shot == 1 else None)
            scores = [study.table_1.get((key, n_shot)) for key in ("p3dc", rival)]
            found += _claim(f"{n_shot}-shot", ("P3DC", TITLES[rival]), (ours, theirs), scores)
    found += _claim(
        "5-shot",
        ("Attentive weighting", "averaging"),
        (published.table_4(name, "raw"), published.table_4(name, "mean")),
        [study.table_4["raw"], study.table_4["mean"]],
    )
    for n_way in sorted({n_way for _, n_way in study.table_3} - {5}):
        for rival in ("l2n", "cl2n"):
            numbers = [published.table_3(name, key, n_way) for key in ("p3dc", rival)]
            scores = [study.table_3.get((key, n_way)) for key in ("p3dc", rival)]
            found += _claim(f"{n_way}-way 1-shot", ("P3DC", TITLES[rival]), numbers, scores)
    return found


def _claim(
    setting: str,
    names: tuple[str, str],
    numbers: Sequence[Published | None],
    measured: Sequence[Measured | None],
) -> list[Claim]:
    """Make the claim that the larger printed number belongs to the better method, if all four numbers are there."""
    (ours, theirs), (one, two) = numbers, measured
    if ours is None or theirs is None or ours.mean == theirs.mean:
        return []
    if one is None or two is None or one.scores is None or two.scores is None:
        return []
    gain, interval = paired(one.scores, two.scores)
    if ours.mean > theirs.mean:
        return [Claim(f"{names[0]} beats {names[1]}, {setting}", gain, interval)]
    return [Claim(f"{names[1]} beats {names[0]}, {setting}", -gain, interval)]
