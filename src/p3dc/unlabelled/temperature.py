"""The temperature of a task, from how far the cosines of its unlabelled rows scatter.

Cosines to the classes are taken as normal around the mean of a row's own class, with the same variance v. The best
logits are then the cosines divided by a temperature in proportion to v / c, where c is the mean cosine of a row to its
own class: linear discriminant analysis. Without unlabelled rows nothing shows v / c, and a typical value is assumed.

Shape letters: N classes, P unlabelled rows.
"""

import numpy as np

from p3dc._arrays import Array, Labels
from p3dc.unlabelled.evidence import expected_cosine
from p3dc.unlabelled.mixture import ComponentSums

TYPICAL = 0.013
"""v / c where the temperature is right as it is."""

PRIOR_ROWS = 20
"""Rows that the typical value counts for."""

LEAST_COSINE = 0.1

EXPECTED, EXPECTED_ROWS = 0.39, 10
"""Cosine of a row to the mean of its class where rows fit their classes as expected, and rows that it counts for."""


def pile_temperature(sums: ComponentSums, groups: Labels, temperature: float) -> float:
    """Adapt the temperature of a task to the rows that were grouped with its classes, (P,).

    It changes by the root of v / c only, because groups are tighter than classes.
    """
    n_way = sums.n_way
    own = np.equal.outer(groups, np.arange(n_way))
    counts, cosines = own.sum(axis=0), sums.cosines(own.astype(np.float32))
    n_free = int((counts - (counts > 0)).sum())  # each class has lost one row to its mean
    if n_free == 0 or n_way == 1:
        return temperature
    means = (own.T @ cosines) / np.maximum(counts, 1)[:, None]
    deviations = (cosines - own @ means)[own.any(axis=1)]
    deviations -= deviations.mean(axis=1, keepdims=True)  # only differences between classes count
    squares = (deviations**2).sum() / (n_way - 1)
    ratio = squares / max(float(cosines[own].mean()), LEAST_COSINE)
    return temperature * float(np.sqrt((ratio + PRIOR_ROWS * TYPICAL) / ((n_free + PRIOR_ROWS) * TYPICAL)))


def by_cohesion(shares: Array, cosines: Array, n_pseudo: float) -> float:
    """Return what to multiply the temperature of probabilities by: rows that fit their classes well make it colder.

    Let c be the cosine of a row to the mean of its class. A temperature in proportion to v / c is in proportion to
    (1 − c²) / 2c, of which the root is taken, because rows were assigned by these cosines. The cosine to a mean of few
    rows is small whatever the class, so that cosines are compared with those expected of as many rows.

    Parameters
    ----------
    shares, cosines : arrays of shape (P, N)
        How much of each row belongs to each class, and its cosine to the other rows of the class.
    n_pseudo : float
        Pseudo-rows of each class.
    """
    n_rows = float(shares.sum())
    if n_rows < 1e-6:
        return 1.0
    expected = float(np.vdot(shares, expected_cosine(shares.sum(axis=0) - shares + n_pseudo))) / n_rows
    found = (float(np.vdot(shares, cosines)) + EXPECTED_ROWS * expected) / (n_rows + EXPECTED_ROWS)
    cosine = np.clip(EXPECTED * found / expected, 0.2, 0.8)
    return float(np.sqrt((1 - cosine**2) / (2 * cosine)))
