"""Open-set recognition: from what cosine on a query belongs to one of the classes, and when it is unknown."""

from statistics import NormalDist

from array_api_compat import array_namespace

from p3dc._arrays import Array

PRIOR_COSINES = 4
"""How many cosines to a wrong class the base classes count for, beside those seen in the task."""


def unknown_threshold(cosines: Array, n_way: int, share: float, variance: float | None) -> float:
    """Return the largest cosine below which this share of out-of-distribution queries falls.

    Cosines to a wrong class are taken as normal around the mean of those seen in the task. An out-of-distribution query
    has the largest of N of them.

    Parameters
    ----------
    cosines : array of shape (n,)
        Cosines of samples to the prototypes of other classes.
    n_way : int
    share : float
        Share of out-of-distribution queries to reject.
    variance : float or None
        Mean squared cosine of samples to other classes among the base classes, where it is known.
    """
    xp = array_namespace(cosines)
    n_seen, n_prior = cosines.shape[0], 0 if variance is None else PRIOR_COSINES
    mean = float(xp.sum(cosines)) / (n_seen + n_prior)
    seen = float(xp.sum((cosines - xp.mean(cosines)) ** 2))
    pooled = (seen + n_prior * (variance or 0.0)) / (n_seen + n_prior)
    below = min(share ** (1 / n_way), 1 - 1e-15)
    return float(mean + NormalDist().inv_cdf(below) * pooled**0.5)


def known_score(cosines: Array, penalty: Array | None = None) -> Array:
    """Return how surely queries belong to any of the classes: the largest cosine, less a penalty, (Q, N) -> (Q,)."""
    largest = array_namespace(cosines).max(cosines, axis=1)
    return largest if penalty is None else largest - penalty


def is_unknown(known: Array, threshold: float) -> Array:
    """Decide which queries belong to none of the classes, (Q,) -> mask (Q,)."""
    return known < threshold
