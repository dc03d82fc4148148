"""What the paper says of its tables, and whether it holds on these features: sentences made from the numbers."""

from dataclasses import dataclass

from p3dc.reproduce.study import Study, paired


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


def claims(study: Study) -> list[Claim]:
    """Check the orderings of the paper that the measured rows allow."""
    found = []
    for n_shot in (1, 5):
        shots = f"{n_shot}-shot"
        for text, key, reference in (
            (f"Calibration with the selected α and β beats none, {shots}", "p3dc", "p3dc-0-0"),
            (f"P3DC beats L2N + NN, {shots}", "p3dc", "l2n"),
            (f"P3DC beats CL2N + NN, {shots}", "p3dc", "cl2n"),
            (f"P3DC beats DC + L2N + NN, {shots}", "p3dc", "dc-nearest"),
            (f"P3DC beats SimpleShot, {shots}", "p3dc", "simpleshot"),
            (f"P3DC beats DC, {shots}", "p3dc", "dc"),
            (f"P3DC beats TCPR, {shots}", "p3dc", "tcpr"),
            (f"L2 normalisation beats plain NN, {shots}", "l2n", "nn"),
        ):
            gain = study.gain(key, reference, n_shot)
            if gain is not None:
                found.append(Claim(text, *gain))
    mean, raw = (study.table_4[attention].scores for attention in ("mean", "raw"))
    if mean is not None and raw is not None:
        found.append(Claim("Attentive prototypes beat average ones, 5-shot", *paired(raw, mean)))
    ways = sorted(n_way for key, n_way in study.table_3 if key == "p3dc")
    for n_way in ways[1:]:
        one, two = study.table_3["p3dc", n_way], study.table_3.get(("l2n", n_way))
        if two is not None and one.scores is not None and two.scores is not None:
            found.append(Claim(f"P3DC beats L2N + NN at {n_way} ways, 1-shot", *paired(one.scores, two.scores)))
    return found
