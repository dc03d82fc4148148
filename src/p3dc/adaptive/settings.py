"""The parameters of the method, checked."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from p3dc._validation import check_count, is_number
from p3dc.errors import InputError
from p3dc.method import ATTENTIONS, Attention

Space = Literal["whitened", "plain"]
SPACES = get_args(Space)
SCALES: dict[Space, float] = {"whitened": 10.0, "plain": 1.0}
"""What similarities to the priors are multiplied by in Eq. (6), unless a scale is given; 1 is the paper."""

MOST_SCALE = 1e9
"""A softmax so sharp has one entry that counts; far above, similarities overflow."""


@dataclass(frozen=True)
class Settings:
    """How support samples are calibrated and queries compared.

    Attributes
    ----------
    alpha, beta : float or None
        Weights of the sample level and of the task level. Where both are None, they are chosen for each task; where one
        is None, it is 0.
    space : {"whitened", "plain"}
        Whether features are whitened and centred, or taken as they are, which is the paper.
    n_nearest, power, attention
        As in :mod:`p3dc.method`.
    scale : float, optional
        Multiplies the similarities to the priors before the softmax; by default that of the space.
    extrapolate : bool
        Whether the weights may leave the triangle.
    """

    alpha: float | None = None
    beta: float | None = None
    space: Space = "whitened"
    n_nearest: int = 5
    power: float = 0.5
    scale: float | None = None
    attention: Attention = "raw"
    extrapolate: bool = False

    def __post_init__(self) -> None:
        check_count("n_nearest", self.n_nearest, 1)
        if not is_number(self.power) or self.power < 0:
            raise InputError(f"power is {self.power!r}. It must be a finite number, 0 or more.")
        if self.scale is not None and (not is_number(self.scale) or not 0 <= self.scale <= MOST_SCALE):
            raise InputError(f"scale is {self.scale!r}. It must be a number from 0 to {MOST_SCALE:,.0f}, or None.")
        if self.space not in SPACES:
            raise InputError(f"space is {self.space!r}. It must be one of {', '.join(map(repr, SPACES))}.")
        if self.attention not in ATTENTIONS:
            raise InputError(f"attention is {self.attention!r}. It must be one of {', '.join(map(repr, ATTENTIONS))}.")
        check_weights(self.alpha, self.beta, extrapolate=self.extrapolate)

    @property
    def whitened(self) -> bool:
        """Whether features are whitened and centred."""
        return self.space == "whitened"

    @property
    def weights(self) -> tuple[float, float] | None:
        """α and β, or None where they are chosen for each task."""
        if self.alpha is None and self.beta is None:
            return None
        return float(self.alpha or 0), float(self.beta or 0)

    @property
    def prior_scale(self) -> float:
        """What similarities to the priors are multiplied by."""
        return SCALES[self.space] if self.scale is None else float(self.scale)

    def fixed_weights(self) -> tuple[float, float]:
        """Return α and β, which the plain space has no rule to choose."""
        if self.weights is None:
            raise InputError(
                "alpha and beta are not given, and only the whitened space can choose them. "
                "Give both, or leave space='whitened'."
            )
        return self.weights


def check_weights(alpha: Any, beta: Any, *, extrapolate: bool) -> None:
    """Refuse weights outside the triangle, unless extrapolation is asked for."""
    for name, weight in (("alpha", alpha), ("beta", beta)):
        if weight is not None and not is_number(weight):
            raise InputError(f"{name} is {weight!r}. It must be a finite number or None.")
    alpha, beta = float(alpha or 0), float(beta or 0)
    if not extrapolate and (min(alpha, beta) < 0 or alpha + beta > 1 + 1e-9):
        raise InputError(
            f"alpha={alpha:g} and beta={beta:g} lie outside the triangle alpha >= 0, beta >= 0, alpha + beta <= 1. "
            "Choose them inside, or ask for extrapolation with extrapolate=True."
        )
