"""Mixtures over unlabelled rows, fitted by expectation–maximisation from inner products alone, in float32.

*Open*: classes, groups and a background compete for the rows. *Closed*: every row belongs to a class.

Shape letters: N classes, P unlabelled rows, J groups, C = N + J components.
"""

from copy import copy

import numpy as np

from p3dc._arrays import Array, Labels, Mask
from p3dc.method import masked_softmax
from p3dc.unlabelled.evidence import COHESION, bayes_factor, evidence
from p3dc.unlabelled.shares import Offsets

ROUNDS = 5
"""Rounds of expectation–maximisation: of the closed mixture, and of the open one between moves of whole groups."""

BLOCKS = 4
"""How often the open mixture is fitted, with moves in between."""

PRESENT = 0.9
"""Prior probability that a class has unlabelled rows."""

BACKGROUND = 0.5 * COHESION**0.5
"""Cosine of the background component: half that of a row to the mean of its class."""


class ComponentSums:
    """Sums of the rows of each component, as inner products with the rows.

    Parameters
    ----------
    gram : array of shape (N + P, N + P)
        Inner products of the pseudo-rows of the classes, summed, and of the rows.
    n_way : int
    n_pseudo : float
        Pseudo-rows of each class.
    stretch : float
        What the sums of the pseudo-rows are multiplied by.
    """

    def __init__(self, gram: Array, n_way: int, n_pseudo: float, stretch: float = 1.0) -> None:
        self.n_way, self.n_pseudo = n_way, n_pseudo
        self.rows, self.cross = gram[n_way:, n_way:].astype(np.float32, copy=False), gram[n_way:, :n_way] * stretch
        self.seeds = np.diag(gram)[:n_way] * stretch**2

    def of(self, kept: Mask) -> "ComponentSums":
        """Return the same for some of the rows, mask (P,)."""
        some = copy(self)
        some.rows, some.cross = self.rows[np.ix_(kept, kept)], self.cross[kept]
        return some

    def __call__(self, responsibilities: Array) -> tuple[Array, Array, Array]:
        """Return sizes, (C,), products with each row, (P, C), and squared lengths, (C,), of the sums."""
        n_way, own = self.n_way, responsibilities[:, : self.n_way]
        products = self.rows @ responsibilities.astype(np.float32, copy=False)
        sizes, squared = responsibilities.sum(axis=0), (products * responsibilities).sum(axis=0)
        sizes[:n_way] += self.n_pseudo
        squared[:n_way] += self.seeds + 2 * (self.cross * own).sum(axis=0)
        products[:, :n_way] += self.cross
        return sizes, products, squared

    def cosines(self, responsibilities: Array) -> Array:
        """Return the cosine of each row to each component without the row's own part, (P, C)."""
        _, products, squared = self(responsibilities)
        without = squared - 2 * responsibilities * products + responsibilities**2
        return (products - responsibilities) / np.sqrt(np.maximum(without, 1e-6))


def fit_open(sums: ComponentSums, groups: Labels, temperature: float, per_evidence: float) -> Array:
    """Fit the open mixture, starting from groups; what the responsibilities, (P, C), lack to 1 is the background."""
    n_way = sums.n_way
    names, counts = np.unique(groups[groups >= n_way], return_counts=True)
    starts = np.concatenate([np.arange(n_way), names[counts > 1]])
    responsibilities: Array = (groups[:, None] == starts).astype(np.float32)
    background = np.full((len(groups), 1), BACKGROUND, dtype=np.float32)
    for block in range(BLOCKS):
        for _ in range(ROUNDS):
            cosines = np.concatenate([sums.cosines(responsibilities), background], axis=1)
            responsibilities = masked_softmax(cosines / temperature, None)[:, :-1]
        if block < BLOCKS - 1:
            responsibilities = _move_groups(responsibilities, sums, per_evidence)
    return responsibilities.astype(np.float64)


def fit_closed(sums: ComponentSums, temperature: float, offsets: Offsets) -> Array:
    """Fit the closed mixture, (P, N), with offsets of the classes.

    It stops early: with more rounds it would be no better on average, and more tasks would lose accuracy.
    """
    responsibilities: Array = np.zeros(sums.cross.shape, dtype=np.float32)
    for _ in range(ROUNDS):
        logits = sums.cosines(responsibilities) / temperature
        responsibilities = masked_softmax(logits + offsets(logits), None)
    return responsibilities.astype(np.float64)


def partition_evidence(sums: ComponentSums, component: Labels, n_components: int) -> float:
    """Return the evidence of a hard partition, (P,); rows of later components have no common class."""
    sizes, _, squared = sums((component[:, None] == np.arange(n_components)).astype(np.float64))
    n_single = int((component >= n_components).sum())
    return float(evidence(sizes, squared).sum() + n_single * evidence(1.0, 1.0))


def free_energy(sums: ComponentSums, responsibilities: Array, per_evidence: float) -> float:
    """Return the expected evidence of a closed mixture, (P, N), in nats, and the entropy of its assignments.

    Rows are unit vectors, assigned independently of each other.
    """
    sizes, _, squared = sums(responsibilities)
    expected = evidence(sizes, squared + (responsibilities * (1 - responsibilities)).sum(axis=0)).sum()
    entropy = -(responsibilities * np.log(np.maximum(responsibilities, 1e-12))).sum()
    return float(per_evidence * expected + entropy)


def _move_groups(responsibilities: Array, sums: ComponentSums, per_evidence: float) -> Array:
    """Move whole groups, and all rows of a class, to the component where the evidence is largest, (P, C) -> (P, C')."""
    n_way = sums.n_way
    small = n_way + np.flatnonzero(responsibilities[:, n_way:].sum(axis=0) < 1.5)
    r = np.delete(responsibilities, small, axis=1)
    parts, with_seeds = r.sum(axis=0, dtype=np.float64), sums.cross.T @ r
    within = (r.T @ (sums.rows @ r)).astype(np.float64)
    moves = np.eye(len(parts), dtype=np.float32)
    for _ in range(len(parts) + n_way):
        own = np.diag(within)
        sizes, squared, together = parts.copy(), own.copy(), within.copy()
        sizes[:n_way] += sums.n_pseudo
        squared[:n_way] += sums.seeds + 2 * np.diag(with_seeds)
        together[:n_way] += with_seeds
        factors = bayes_factor(sizes[:, None], squared[:, None], parts, own, together)
        stay = bayes_factor(sums.n_pseudo, sums.seeds, parts[:n_way], own[:n_way], np.diag(with_seeds))
        factors[:, :n_way] -= stay
        if len(parts) > n_way:  # a class with few rows is more likely one of the groups than absent
            few = parts[:n_way, None] <= 0.5 * parts[n_way:]
            prior = np.log(PRESENT / (1 - PRESENT) / (len(parts) - n_way)) / per_evidence
            factors[:n_way, n_way:][few] += max(prior, 0.0)
        np.fill_diagonal(factors, -np.inf)
        factors[:, parts < 1e-6] = -np.inf
        to, part = np.unravel_index(factors.argmax(), factors.shape)
        if factors[to, part] <= 1e-12:
            break
        if min(to, part) >= n_way:  # of two groups the first stays, however their factors were rounded
            to, part = min(to, part), max(to, part)
        for each in (moves, with_seeds, parts, within, within.T):
            each[..., to] += each[..., part]
            each[..., part] = 0
        if part >= n_way:
            moves, with_seeds, parts, within = (
                np.delete(each, part, -1) for each in (moves, with_seeds, parts, within)
            )
            within = np.delete(within, part, axis=0)
    return r @ moves
