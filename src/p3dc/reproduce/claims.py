"""The orderings that the paper's tables claim, and whether they hold on these features."""

from collections.abc import Sequence
from dataclasses import dataclass

from p3dc.evaluation.results import paired_difference, points
from p3dc.reproduce import published
from p3dc.reproduce.experiments import MethodResult, Study
from p3dc.reproduce.published import Published
from p3dc.reproduce.table1 import TITLES


@dataclass(frozen=True)
class Claim:
    """One ordering of the paper."""

    text: str
    gain: float  # the paired difference that the claim is about
    interval: float  # half the width of its 95 % interval

    @property
    def verdict(self) -> str:
        """Whether the whole interval lies on one side of zero, and on which."""
        if abs(self.gain) <= self.interval:
            return "not decided"
        return "holds" if self.gain > 0 else "does not hold"

    def __str__(self) -> str:
        return f"{self.text}: {self.verdict} ({points(self.gain, self.interval)} points)."


def claims(study: Study) -> list[Claim]:
    """Check the orderings of the paper's numbers for the data set with these classes, or else for miniImageNet."""
    name = study.data.paper_name or "miniImageNet"
    found = []
    for n_shot in (1, 5):
        for rival in published.SAME_FEATURES:
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
    setting: str, names: tuple[str, str], numbers: Sequence[Published | None], results: Sequence[MethodResult | None]
) -> list[Claim]:
    """Claim that the method with the larger printed number is better, if all four numbers are available."""
    (ours, theirs), (one, two) = numbers, results
    if ours is None or theirs is None or ours.mean == theirs.mean:
        return []
    if one is None or two is None or one.scores is None or two.scores is None:
        return []
    gain, interval = paired_difference(one.scores, two.scores)
    if ours.mean > theirs.mean:
        return [Claim(f"{names[0]} beats {names[1]}, {setting}", gain, interval)]
    return [Claim(f"{names[1]} beats {names[0]}, {setting}", -gain, interval)]
