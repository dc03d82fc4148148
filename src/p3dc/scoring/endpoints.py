"""Both endpoints of each support sample, for many tasks at once.

Shape letters: T tasks, S support, B base classes, U base classes in use, D features.
"""

from collections.abc import Callable, Iterable

from array_api_compat import array_namespace

from p3dc import method
from p3dc._arrays import Array
from p3dc.scoring.nearest_priors import Part, products

Compare = Callable[[Part, Array], tuple[Array, Array | None]]
"""From some samples and some priors to their similarities, (t, s, U), and the lengths of the priors, (t, 1, U)."""


def endpoints_of_tasks(
    samples: Array,
    priors: Array,
    parts: Iterable[tuple[Part, Array, Array, Array]],
    compare: Compare,
    scale: float,
    centre: Array | None = None,
) -> tuple[Array, Array]:
    """Pull each sample towards its own nearest priors and towards those of its task, Eq. (5) and (9).

    Parameters
    ----------
    samples : array of shape (T, S, D)
        Transformed samples.
    priors : array of shape (B, D)
    parts
        Some samples at a time with the priors in use, as :func:`p3dc.scoring.nearest_priors.priors_in_use` yields them.
    compare : callable
        Its lengths, where it returns any, are those of priors as seen from the centre: such priors are centred and
        normalised without an array that has the axes of tasks, priors and features at once.
    scale : float
    centre : array of shape (T, 1, D), optional

    Returns
    -------
    sample_ends, task_ends : arrays of shape (T, S, D)
    """
    xp = array_namespace(samples)
    ends = xp.empty_like(samples), xp.empty_like(samples)
    for part, used, near, shared in parts:
        similarities, lengths = compare(part, used)
        some = xp.astype(priors[used], samples.dtype)
        for end, chosen in zip(ends, (near, shared), strict=True):
            weights = method.prior_weights(similarities, chosen, scale)
            if lengths is not None:
                weights = weights / lengths
            end[part] = samples[part] + products(weights, some.T)
            if centre is not None:
                end[part] -= xp.sum(weights, axis=-1, keepdims=True) * centre[part[0]]
    return ends
