"""How unequal the classes are among unlabelled rows, and whether they are exactly equal.

Two mixtures are fitted, one balanced and one not. Which of them explains the rows better is told by the variational
free energy,

    F = E[log p(rows | assignment)] + H(assignment) + log p(assignment).

If the classes are exactly equal, all assignments with P / N rows of each class are equally likely:
p = ∏ (P / N)! / P!. Otherwise all counts are equally likely, and so are all assignments with the same counts:
p = ∏ n! / P!, divided by the number of possible counts, (P + N − 1)! / (P! (N − 1)!). So unequal classes cost the
logarithm of that number where a balanced mixture explains the rows as well.

Shape letters: P unlabelled rows, N classes, H hypotheses about the variance of log shares.
"""

from math import exp, lgamma

import numpy as np

from p3dc._arrays import Array
from p3dc.unlabelled.mixture import ComponentSums, fit_closed, free_energy
from p3dc.unlabelled.shares import EQUAL, UNEQUAL, balancing_offsets, count_rows, offsets_by

RARE = 6.0
"""Log odds against exactly equal classes, before any row is seen."""

FEW = 5.0
"""Mean number of rows of a class below which exactly equal classes are not considered: it would be by chance."""

CERTAIN = 50.0
"""Log odds from which on a hypothesis is as good as certain."""


def judge_balance(sums: ComponentSums, temperature: float, per_evidence: float) -> Array:
    """Return the posterior probability of each hypothesis about how unequal the classes are, (H,).

    How unequal they are, if they are not equal, follows from the counts in a mixture in which they may be as unequal as
    can be.

    Parameters
    ----------
    sums : ComponentSums
        Of rows that all belong to a class.
    temperature : float
    per_evidence : float
        What turns evidence into nats.
    """
    free = fit_closed(sums, temperature, offsets_by(UNEQUAL))
    spreads = count_rows(sums.cosines(free) / temperature).posterior()
    n_rows, n_way = free.shape
    if n_rows < FEW * n_way:
        return spreads
    unequal = fit_closed(sums, temperature, offsets_by(spreads))
    equal = fit_closed(sums, temperature, balancing_offsets)
    gained = free_energy(sums, equal, per_evidence) - free_energy(sums, unequal, per_evidence)
    odds = gained + _log_equal(n_rows, n_way) - _log_unequal(unequal.sum(axis=0)) - RARE
    probability = 1 / (1 + exp(np.clip(-odds, -CERTAIN, CERTAIN)))
    return probability * EQUAL + (1 - probability) * spreads


def _log_equal(n_rows: int, n_way: int) -> float:
    """Return the log probability of an assignment to exactly equal classes, plus log P!."""
    return n_way * lgamma(n_rows / n_way + 1)


def _log_unequal(counts: Array) -> float:
    """Return the same of an assignment with these counts, (N,), if all counts are equally likely."""
    n_rows, n_way = float(counts.sum()), len(counts)
    n_compositions = lgamma(n_rows + n_way) - lgamma(n_rows + 1) - lgamma(n_way)
    return sum(map(lgamma, counts + 1)) - n_compositions
