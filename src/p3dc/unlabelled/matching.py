"""Which class the rows of a component belong to, where the component that grew from a class may hold another's rows.

A class has the rows of at most one component, and a component holds the rows of at most one class. The probability of
each pair follows from the Bayes factors of all pairs, balanced by Sinkhorn's rule.

Shape letters: N classes, P unlabelled rows, C components, of which the first N grew from the classes.
"""

import numpy as np

from p3dc._arrays import Array
from p3dc.unlabelled.evidence import bayes_factor
from p3dc.unlabelled.mixture import PRESENT, ComponentSums

ROUNDS = 60
LARGEST = 50.0
"""Nats, from which on a pair is as good as certain."""


def match_components(sums: ComponentSums, responsibilities: Array, per_evidence: float) -> Array:
    """Return the probability that the rows of each component belong to each class, (P, C) -> (N, C).

    A class may have no rows, and rows no class.
    """
    n_way, n_rows = sums.n_way, responsibilities.sum(axis=0)
    squared = (responsibilities * (sums.rows @ responsibilities.astype(np.float32))).sum(axis=0)
    products = sums.cross.T @ responsibilities
    factors = per_evidence * bayes_factor(sums.n_pseudo, sums.seeds[:, None], n_rows, squared, products)
    factors[:, n_rows < 1e-6] = -LARGEST
    likely = np.exp(np.clip(factors, -LARGEST, LARGEST))
    likely[:, n_way:] /= max(len(n_rows) - n_way, 1)
    of_class, of_component = np.ones(n_way), np.ones(len(n_rows))
    for _ in range(ROUNDS):
        of_class = 1 / (likely @ of_component + 1 - PRESENT)
        of_component = 1 / (of_class @ likely + 1)
    return of_class[:, None] * likely * of_component
