"""The temperature of a task, from how far the cosines of its unlabelled rows scatter.

Cosines to the classes are taken as normal around the mean of a row's own class, with the same variance v. The best
logits are then the cosines divided by a temperature in proportion to v / c, where c is the mean cosine of a row to its
own class: linear discriminant analysis. Without unlabelled rows nothing shows v / c, and a typical value is assumed.

Shape letters: N classes, P unlabelled rows.
"""

import numpy as np

from p3dc._arrays import Labels
from p3dc.unlabelled.mixture import ComponentSums

TYPICAL = 0.013
"""v / c where the temperature is right as it is."""

PRIOR_ROWS = 20
"""Rows that the typical value counts for."""

LEAST_COSINE = 0.1


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
