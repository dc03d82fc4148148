"""Past the paper: weights, scale and confidence chosen from the base classes and the support alone.

Support and queries are prepared first: each vector is normalised, whitened by the geometry of the base classes, seen
from a centre between the mean of the base classes and that of the task, and normalised again. There the paper's
equations hold unchanged, every inner product is a cosine, and the length of the features no longer matters.
``docs/auto.md`` derives each rule and shows what was measured.

Arrays may come from NumPy or from torch. Shape letters: S support, N ways, B base classes, D features; ``...`` stands
for any number of leading task axes.
"""

from statistics import NormalDist

from array_api_compat import array_namespace

from p3dc.method import Array, l2_normalize

SHARPNESS = 10.0
"""What cosines to the priors are multiplied by in Eq. (6)."""

PLAIN_TEMPERATURE = 0.03
"""The same for features that are not prepared, chosen by ``benchmarks/temperature.py``."""

PRIOR_STRANGERS = 4
"""How many cosines of strangers the base classes count for, beside those seen in the task."""


def class_averages(members: Array) -> Array:
    """Turn membership into weights that average the samples of each class, mask (S, N) -> (N, S)."""
    xp = array_namespace(members)
    weights = xp.astype(members, xp.float64)
    return (weights / xp.sum(weights, axis=0)).T


def typical_shots(members: Array) -> float:
    """Harmonic mean of the numbers of samples, mask (S, N) -> one number: the smallest class counts most."""
    xp = array_namespace(members)
    counts = xp.sum(xp.astype(members, xp.float64), axis=0)
    return float(1 / xp.mean(1 / counts))


def task_centre(class_means: Array, home: Array) -> Array:
    """Move from the mean of the base classes towards that of the task, as far as they surely differ.

    The mean of a few classes is uncertain by their variance over their number. What the distance exceeds that by is
    believed, as James and Stein do.

    (..., N, D), (D,) -> (..., 1, D)
    """
    xp = array_namespace(class_means)
    n_way = class_means.shape[-2]
    task = xp.mean(class_means, axis=-2, keepdims=True)
    away = task - home
    if n_way < 2:
        return task - away
    spread = class_means - task
    uncertain = xp.sum(spread * spread, axis=(-2, -1))[..., None, None] / (n_way * (n_way - 1))
    distance = xp.vecdot(away, away)[..., None]
    share = 1 - uncertain / xp.where(distance == 0, xp.ones_like(distance), distance)
    return home + xp.where((distance > 0) & (share > 0), share, xp.zeros_like(share)) * away


def prepare(whitened: Array, centre: Array) -> Array:
    """See whitened vectors from the centre and normalise them, (..., S, D), (..., 1, D) -> (..., S, D)."""
    return l2_normalize(whitened - centre)


def agreement(support: Array, task_ends: Array, averages: Array) -> Array:
    """Tell how well the priors fit a task: the mean cosine of its class means to what pulls them.

    (..., S, D), (..., S, D), (N, S) -> (..., 1, 1)
    """
    xp = array_namespace(support)
    means, pulls = averages @ support, averages @ (task_ends - support)
    return xp.mean(xp.vecdot(l2_normalize(means), l2_normalize(pulls)), axis=-1)[..., None, None]


def pull_weight(agreed: Array, support: Array, task_ends: Array, shots: float, tightness: float) -> Array:
    """Choose β so that the class means come nearest to the true ones.

    Of a class there are two views: the mean of its samples and the mean of what pulls them. How well the first tells
    the true mean follows from the number of shots and from how tight classes are; how well the second does follows
    from how far the two agree, and is nothing where they do not. The best mix of both is a regression with two
    variables; where they agree more than two views of one mean can, the pull is as strong as the paper's can be.

    (..., 1, 1), (..., S, D), (..., S, D) -> (..., 1, 1)
    """
    xp = array_namespace(support)
    agreed = xp.where(agreed > 0, agreed, xp.zeros_like(agreed))
    known = tightness**2 / (tightness**2 + (1 - tightness**2) / shots)
    by_pull, by_samples = agreed * (1 - known), known - agreed**2
    pulls = task_ends - support
    shrinking = 1 / xp.sqrt(xp.vecdot(task_ends, task_ends))
    reach = xp.mean(xp.sqrt(xp.vecdot(pulls, pulls)) * shrinking, axis=-1)[..., None, None]
    kept = xp.mean(shrinking, axis=-1)[..., None, None]
    whole = reach * by_samples + by_pull * (1 - kept)
    inside = (by_samples > 0) & (whole > by_pull)
    ones = xp.ones_like(whole)
    return xp.where(inside, by_pull / xp.where(inside, whole, ones), xp.where(agreed > 0, ones, 0 * ones))


def temperature(shots: float, *, prepared: bool = True) -> float:
    """Divide cosines by this before a softmax, so that it tells how often the class is right."""
    return 0.05 + 0.0225 / shots if prepared else PLAIN_TEMPERATURE


def stranger_threshold(cosines: Array, n_way: int, share: float, spread: float | None) -> float:
    """Find the largest cosine that this share of samples of other classes stays below.

    The cosines of strangers and what the base classes tell give a normal distribution, and a stranger shows the largest
    of N draws from it.

    (n,) -> one number
    """
    xp = array_namespace(cosines)
    n_seen, n_prior = cosines.shape[0], 0 if spread is None else PRIOR_STRANGERS
    mean = float(xp.sum(cosines)) / (n_seen + n_prior)
    seen = float(xp.sum((cosines - xp.mean(cosines)) ** 2))
    variance = (seen + n_prior * (spread or 0.0)) / (n_seen + n_prior)
    below = min(share ** (1 / n_way), 1 - 1e-15)
    return float(mean + NormalDist().inv_cdf(below) * variance**0.5)
