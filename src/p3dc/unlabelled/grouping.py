"""Groups of unlabelled rows: agglomerative clustering by Bayes factors, with no number of clusters to choose.

Shape letters: N classes, P unlabelled rows, D features.
"""

import numpy as np

from p3dc._arrays import Array, Labels
from p3dc.adaptive.space import class_averages, members, shrunken_mean
from p3dc.unlabelled.evidence import COHESION, RATIO, SCALE, expected_length, twice_evidence

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
        In float32.
    """
    sums = np.concatenate([prototypes * expected_length(n_pseudo), rows], dtype=np.float32, casting="same_kind")
    return sums @ sums.T


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
    gram = np.multiply(gram, 2 * SCALE, dtype=np.float64)
    growth, squared = 1 + RATIO * sizes, np.diag(gram) / 2
    np.fill_diagonal(gram, -np.inf)  # infinitely unlike: what may never join
    gram[:n_way, :n_way] = -np.inf
    own = twice_evidence(growth, squared)  # infinite for a set that has joined another, which no set can join
    n_sets, n_joined = len(sizes), 0
    root, changed_at = list(range(n_sets)), [0] * n_sets
    partner, best, found_at = np.zeros(n_sets, dtype=np.int64), np.empty(n_sets), np.zeros(n_sets)

    def factors(start: int, stop: int) -> Array:
        """Return twice the log Bayes factors of some sets with all, (stop - start, M)."""
        some = slice(start, stop)
        together = squared + squared[some, None]
        together += gram[some]
        found = twice_evidence(growth + (growth[some, None] - 1), together)
        found -= own
        found -= own[some, None]
        return found

    for start in range(0, n_sets, BLOCK):
        block = factors(start, start + BLOCK)
        block[np.tri(len(block), n_sets, start, dtype=np.bool_)] = -np.inf  # each pair counts once, with its first set
        partner[start : start + BLOCK], best[start : start + BLOCK] = block.argmax(axis=1), block.max(axis=1)
    while best[i := int(best.argmax())] > 0:
        j = int(partner[i])
        join = found_at[i] >= changed_at[j]  # otherwise the partner has changed, and the value is only an upper bound
        if join:
            n_joined += 1
            root[j], changed_at[i], changed_at[j] = i, n_joined, n_joined
            growth[i] += growth[j] - 1
            squared[i] += squared[j] + gram[i, j]
            gram[i] += gram[j]
            gram[:, i] = gram[i]
            own[i], own[j], best[j] = twice_evidence(growth[i], squared[i]), np.inf, -np.inf
        (row,) = factors(i, i + 1)
        partner[i] = i + row[i:].argmax()
        best[i], found_at[i] = row[partner[i]], n_joined
        if join:
            (better,) = (row[:i] > best[:i]).nonzero()
            partner[better], best[better], found_at[better] = i, row[better], n_joined
    for k, joined in enumerate(root):  # each has joined one before it
        root[k] = root[joined]
    return np.array(root)


def pile_centre(support: Array, labels: Labels, rows: Array, groups: Labels, base_mean: Array) -> Array:
    """Return the centre of a task with unlabelled rows.

    The centre of the support alone moves towards that of classes and groups together, weighted by how well each mean is
    known. It moves only as far as the support departs from the base classes: where it does not, their mean is the
    better centre, because groups of one class would draw the centre towards it.

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
    own, departure = shrunken_mean(class_averages(members(labels)) @ support, base_mean)
    if not departure.any():
        return own
    everything = np.concatenate([support, rows], dtype=rows.dtype, casting="same_kind")
    group_of = np.concatenate([labels, groups])
    order = np.argsort(group_of, kind="stable")
    _, first, counts = np.unique(group_of[order], return_index=True, return_counts=True)
    means = np.add.reduceat(everything[order], first) / counts[:, None]
    known = counts * COHESION / (counts * COHESION + 1 - COHESION)
    together, _ = shrunken_mean(means, base_mean, known / known.sum())
    return own + departure * (together - own)
