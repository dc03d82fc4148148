"""Groups of unlabelled rows that resemble each other and none of the classes, and so wait for a name.

Shape letters: N classes, P unlabelled rows, J groups, C = N + J components, D features.
"""

import numpy as np

from p3dc._arrays import Array, Labels, Mask
from p3dc.method import l2_normalize
from p3dc.unlabelled.evidence import COHESION, RATIO, bayes_factor
from p3dc.unlabelled.mixture import ComponentSums

LEAST_ROWS = 3
"""Rows of a group that may be proposed."""

APART = 25.0
"""Nats of evidence that a group shares no class with the most similar class."""


def propose(
    sums: ComponentSums, component: Labels, n_components: int, cosines: Array, per_evidence: float
) -> tuple[Mask, Mask]:
    """Find the groups of a partition that are as tight as a class and surely none of the classes.

    Parameters
    ----------
    sums : ComponentSums
    component : array of shape (P,)
        The component of each row; C for the background.
    n_components : int
        C.
    cosines : array of shape (P, C)
        Of each row to each component, without the row's own part.
    per_evidence : float
        What turns evidence into nats.

    Returns
    -------
    members : mask of shape (P, J)
        The rows of each group.
    proposed : mask of shape (J,)
    """
    n_way, belonging = sums.n_way, np.equal.outer(component, np.arange(n_components))
    sizes, products, squared = sums(belonging.astype(np.float64))
    members, n_members = belonging[:, n_way:], sizes[n_way:]
    inside = (members * cosines[:, n_way:]).sum(axis=0) / np.maximum(n_members, 1)
    with_classes = members.T @ products[:, :n_way]
    together = bayes_factor(n_members[:, None], squared[n_way:, None], sizes[:n_way], squared[:n_way], with_classes)
    apart = -per_evidence * together.max(axis=1)
    return members, (n_members >= LEAST_ROWS) & (inside >= COHESION**0.5) & (apart > APART)


def centres(shares: Array, rows: Array) -> Array:
    """Return the centre of each group, the longer the better it is known, (P, J), (P, D) -> (J, D)."""
    n_rows = shares.sum(axis=0)[:, None]
    return l2_normalize(shares.T @ rows) * (n_rows * RATIO / (1 + n_rows * RATIO))
