"""Groups of unlabelled rows: agglomerative clustering by Bayes factors, with no number of clusters to choose.

Shape letters: N classes, P unlabelled rows, D features.
"""

import numpy as np

from p3dc._arrays import Array, Labels
from p3dc.unlabelled.evidence import COHESION, bayes_factor, evidence, expected_length

BLOCK = 16
"""Sets whose first partners are found together: few enough for the processor's cache."""


def inner_products(prototypes: Array, rows: Array, n_pseudo: float) -> Array:
    """Multiply the sums of the classes and the rows with each other.

    Each class takes part as ``n_pseudo`` rows along its prototype.

    Parameters
    ----------
    prototypes : array of shape (N, D)
        Unit vectors.
    rows : array of shape (P, D)
        Unit vectors.
    n_pseudo : float

    Returns
    -------
    array of shape (N + P, N + P)
    """
    sums = np.concatenate([prototypes * expected_length(n_pseudo), rows], dtype=np.float32, casting="same_kind")
    return (sums @ sums.T).astype(np.float64)


def group_rows(gram: Array, n_way: int, n_pseudo: float) -> Labels:
    """Group unlabelled rows with each other and with the classes, from their inner products.

    Returns
    -------
    array of shape (P,)
        The group of each row: the number of its class, or N plus the number of a row in its group.
    """
    sizes = np.concatenate([np.full(n_way, n_pseudo), np.ones(len(gram) - n_way)])
    return agglomerate(gram, sizes, n_way)[n_way:]


def agglomerate(gram: Array, sizes: Array, n_way: int) -> Labels:
    """Join the two sets with the largest Bayes factor until none is positive.

    The first N sets are classes, which never join each other.

    Parameters
    ----------
    gram : array of shape (M, M)
        Inner products of the sums of M sets.
    sizes : array of shape (M,)
    n_way : int

    Returns
    -------
    array of shape (M,)
        The set that each one ends in.
    """
    gram, sizes, squared = gram.copy(), sizes.copy(), np.diag(gram).copy()
    np.fill_diagonal(gram, -np.inf)  # infinitely unlike: what may never join
    gram[:n_way, :n_way] = -np.inf
    own = evidence(sizes, squared)  # infinite for a set that has joined another, which no set can join
    root, exact = np.arange(len(sizes)), np.ones(len(sizes), dtype=bool)
    partner, best = np.zeros(len(sizes), dtype=np.int64), np.empty(len(sizes))
    for start in range(0, len(sizes), BLOCK):
        some = slice(start, start + BLOCK)
        factors = bayes_factor(sizes[some, None], squared[some, None], sizes, squared, gram[some])
        partner[some], best[some] = factors.argmax(axis=1), factors.max(axis=1)

    def find_partner(i: int) -> Array:
        row = evidence(sizes[i] + sizes, squared[i] + squared + 2 * gram[i]) - (own[i] + own)
        partner[i] = row.argmax()
        best[i], exact[i] = row[partner[i]], True
        return row

    while best[i := int(best.argmax())] > 0:
        if not exact[i]:  # its partner has changed since, so its value is only an upper bound
            find_partner(i)
            continue
        j = int(partner[i])
        i, j = (j, i) if j < n_way else (i, j)
        root[root == j] = i
        sizes[i] += sizes[j]
        squared[i] += squared[j] + 2 * gram[i, j]
        gram[i] += gram[j]
        gram[:, i] = gram[i]
        own[i], own[j], best[j] = evidence(sizes[i], squared[i]), np.inf, -np.inf
        exact[(partner == j) | (partner == i)] = False
        row = find_partner(i)
        (better,) = (row > best).nonzero()
        partner[better], best[better], exact[better] = i, row[better], True
    return root


def pile_centre(support: Array, labels: Labels, rows: Array, groups: Labels, base_mean: Array) -> Array:
    """Return the centre of a task with unlabelled rows, by James–Stein shrinkage towards the mean of the base classes.

    As :func:`p3dc.adaptive.space.task_centre`, with one more mean for each group, weighted by how well it is known.

    Parameters
    ----------
    support, rows : arrays of shape (S, D) and (P, D)
        Whitened.
    labels, groups : arrays of shape (S,) and (P,)
        Class or group of each.
    base_mean : array of shape (D,)

    Returns
    -------
    array of shape (1, D)
    """
    everything, group_of = np.concatenate([support, rows]), np.concatenate([labels, groups])
    order = np.argsort(group_of, kind="stable")
    _, first, counts = np.unique(group_of[order], return_index=True, return_counts=True)
    means = np.add.reduceat(everything[order], first) / counts[:, None]
    known = counts * COHESION / (counts * COHESION + 1 - COHESION)
    weights = known / known.sum()
    mean, effective = weights @ means, 1 / (weights**2).sum()
    away = mean - base_mean
    if effective <= 1 + 1e-9 or not away.any():
        return base_mean[None]
    uncertainty = weights @ ((means - mean) ** 2).sum(axis=1) / (effective - 1)
    return (base_mean + max(0.0, 1 - uncertainty / (away @ away)) * away)[None]
