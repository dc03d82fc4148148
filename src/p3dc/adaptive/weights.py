"""The rule that chooses β, and how relevant the priors are to a task.

``docs/explanation/auto.md`` derives the rule and shows what was measured. Arrays may come from NumPy or
from torch. Shape letters: S support, N ways, D features; ``...`` stands for any number of leading task axes.
"""

from array_api_compat import array_namespace

from p3dc._arrays import Array
from p3dc.method import l2_normalize


def typical_shots(belonging: Array) -> float:
    """Harmonic mean of the numbers of samples, mask (S, N) -> one number: the smallest class counts most."""
    xp = array_namespace(belonging)
    counts = xp.sum(xp.astype(belonging, xp.float64), axis=0)
    return float(1 / xp.mean(1 / counts))


def relevance(support: Array, task_ends: Array, averages: Array) -> Array:
    """Compute how well the priors fit a task: the mean cosine of its class means to what pulls them.

    (..., S, D), (..., S, D), (N, S) -> (..., 1, 1)
    """
    xp = array_namespace(support)
    means, pulls = averages @ support, averages @ (task_ends - support)
    return xp.mean(xp.vecdot(l2_normalize(means), l2_normalize(pulls)), axis=-1)[..., None, None]


def choose_beta(relevant: Array, support: Array, task_ends: Array, shots: float, tightness: float) -> Array:
    """Choose β so that the calibrated class means come nearest to the true ones.

    There are two views of a class: the mean of its samples, and the mean of what pulls them. How well the first
    predicts the true mean follows from the number of shots and from how tight classes are. How well the second does
    follows from how far the two agree; where they do not agree, it predicts nothing. The best mix of both is a
    regression on two variables. Where they agree more than two views of one mean can, the pull is as strong as the
    paper allows.

    (..., 1, 1), (..., S, D), (..., S, D) -> (..., 1, 1)
    """
    xp = array_namespace(support)
    agreed = xp.where(relevant > 0, relevant, xp.zeros_like(relevant))
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
