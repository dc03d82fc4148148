"""The paper's equations (1) to (14), in order, as pure functions over arrays.

The arrays may come from NumPy or from torch; what goes in as float32 comes out as float32. ``...`` stands for any
number of leading task axes, so that one task and ten thousand are the same code. Shape letters:

S support samples, N ways, K shots, Q queries, B base classes, D features.
"""

from functools import partial
from numbers import Real
from typing import Literal, get_args

import numpy as np
from array_api_compat import array_namespace

from p3dc._arrays import Array, is_tensor

Attention = Literal["raw", "unit", "mean"]
ATTENTIONS = get_args(Attention)


def l2_normalize(x: Array) -> Array:
    """Divide each vector by its length, Eq. (1). A vector of zeros stays as it is.

    (..., D) -> (..., D)
    """
    xp = array_namespace(x)
    norm, factor = _norm_in_range(x)
    if factor is not None:
        x = x * factor[..., None]
    return x / xp.where(norm == 0, xp.ones_like(norm), norm)[..., None]


def tukey(x: Array, power: float) -> Array:
    """Transform features by Tukey's ladder of powers, Eq. (2): x to the power λ, or its logarithm where λ is 0.

    (..., D) -> (..., D)
    """
    xp = array_namespace(x)
    return xp.log(x) if power == 0 else x ** plain(power)


def nearest_priors(similarities: Array, n_nearest: int) -> Array:
    """Choose the M most similar base classes of each sample, Eq. (3), as a mask. Of equals, the first are chosen.

    (..., S, B) -> (..., S, B) of bool
    """
    xp = array_namespace(similarities)
    n_base = similarities.shape[-1]
    if n_nearest >= n_base:
        return xp.ones_like(similarities, dtype=xp.bool)
    threshold = _nth_largest(similarities, n_nearest)[..., None]
    above, level = similarities > threshold, similarities == threshold
    places = n_nearest - xp.sum(xp.astype(above, xp.int64), axis=-1, keepdims=True)
    return above | (level & (xp.cumulative_sum(xp.astype(level, xp.int64), axis=-1) <= places))


def prior_similarities(transformed: Array, priors: Array) -> Array:
    """Take the inner product of each transformed sample with each base prototype, Eq. (4).

    (..., S, D), (B, D) -> (..., S, B)
    """
    return transformed @ priors.mT


def pull(transformed: Array, priors: Array, weights: Array) -> Array:
    """Pull each sample towards the base prototypes of its weights, Eq. (5): the endpoint s of the sample level.

    (..., S, D), (B, D), (..., S, B) -> (..., S, D)
    """
    return transformed + weights @ priors


def prior_weights(similarities: Array, chosen: Array, scale: float) -> Array:
    """Weigh the chosen base classes by the softmax of their similarities, Eq. (6); the others weigh nothing.

    ``scale`` multiplies the similarities first; 1 is the paper.

    (..., S, B), mask (..., S or 1, B) -> (..., S, B)
    """
    return masked_softmax(similarities * plain(scale), chosen)


def sample_level(normalised: Array, sample_ends: Array, alpha: Array | float) -> Array:
    """Calibrate by the sample level alone, Eq. (7): the unified model with β = 0.

    (..., S, D), (..., S, D) -> (..., S, D)
    """
    alpha = plain(alpha)
    return l2_normalize((1 - alpha) * normalised + alpha * l2_normalize(sample_ends))


def task_priors(nearest: Array) -> Array:
    """Join the nearest base classes of all samples of a task, Eq. (8).

    mask (..., S, B) -> mask (..., 1, B)
    """
    return array_namespace(nearest).any(nearest, axis=-2, keepdims=True)


def task_endpoints(transformed: Array, priors: Array, similarities: Array, nearest: Array, scale: float) -> Array:
    """Pull each sample towards all base prototypes of its task, Eq. (9): the endpoint t of the task level.

    (..., S, D), (B, D), (..., S, B), mask (..., S, B) -> (..., S, D)
    """
    return pull(transformed, priors, prior_weights(similarities, task_priors(nearest), scale))


def task_level(normalised: Array, task_ends: Array, beta: Array | float) -> Array:
    """Calibrate by the task level alone, Eq. (10): the unified model with α = 0.

    (..., S, D), (..., S, D) -> (..., S, D)
    """
    beta = plain(beta)
    return l2_normalize((1 - beta) * normalised + beta * l2_normalize(task_ends))


def unify(normalised: Array, sample_ends: Array, task_ends: Array, alpha: Array | float, beta: Array | float) -> Array:
    """Mix a sample with its normalised endpoints and normalise, Eq. (11): 1 - α - β, α and β are barycentric.

    (..., S, D), (..., S, D), (..., S, D) -> (..., S, D)
    """
    return l2_normalize(mix(normalised, sample_ends, task_ends, alpha, beta))


def cosine_scores(queries: Array, prototypes: Array) -> Array:
    """Score each class by the cosine of the query to its prototype, Eq. (12); the largest is the prediction.

    (..., Q, D), (..., N, Q or 1, D) -> (..., Q, N)
    """
    xp = array_namespace(queries)
    return xp.vecdot(l2_normalize(queries)[..., None, :, :], l2_normalize(prototypes)).mT


def attentive_prototypes(weights: Array, calibrated: Array) -> Array:
    """Average the calibrated samples of each class with the weights that a query gives them, Eq. (13).

    (..., N, Q or 1, K), (..., N, K, D) -> (..., N, Q or 1, D)
    """
    return weights @ calibrated


def attention_weights(
    queries: Array, calibrated: Array, present: Array | None = None, attention: Attention = "raw"
) -> Array:
    """Weigh the samples of each class by the softmax of their inner products with a query, Eq. (14).

    ``attention`` is "raw" for the query as it is, which is the paper, "unit" for the normalised query and "mean" for
    equal weights, which are the same for all queries, as they are where K is 1. ``present`` is false where a class has
    fewer than K samples.

    (..., Q, D), (..., N, K, D), mask (..., N, K) -> (..., N, Q or 1, K)
    """
    if attention == "mean" or calibrated.shape[-2] == 1:
        logits = array_namespace(calibrated).zeros_like(calibrated[..., None, :, 0])
    else:
        asking = l2_normalize(queries) if attention == "unit" else queries
        logits = asking[..., None, :, :] @ calibrated.mT
    return masked_softmax(logits, None if present is None else present[..., None, :])


def calibrate(
    support: Array,
    priors: Array,
    *,
    alpha: Array | float,
    beta: Array | float,
    n_nearest: int = 5,
    power: float = 0.5,
    scale: float = 1.0,
) -> Array:
    """Calibrate the support samples of a task: the first half of the paper in one call.

    ``alpha`` and ``beta`` may be arrays that broadcast against the support, one point for each task for example.

    (..., S, D), (B, D) -> (..., S, D)
    """
    sample_ends, task_ends = endpoints(support, priors, n_nearest=n_nearest, power=power, scale=scale)
    return unify(l2_normalize(support), sample_ends, task_ends, alpha, beta)


def endpoints(support: Array, priors: Array, *, n_nearest: int, power: float, scale: float) -> tuple[Array, Array]:
    """Find both endpoints of each support sample, s and t.

    (..., S, D), (B, D) -> (..., S, D), (..., S, D)
    """
    transformed = tukey(support, power)
    similarities = prior_similarities(transformed, priors)
    nearest = nearest_priors(similarities, n_nearest)
    xp = array_namespace(support)
    used = xp.nonzero(xp.any(xp.reshape(nearest, (-1, nearest.shape[-1])), axis=0))[0]  # the others weigh nothing
    similarities, nearest = xp.take(similarities, used, axis=-1), xp.take(nearest, used, axis=-1)
    priors = xp.take(priors, used, axis=0)
    sample_ends = pull(transformed, priors, prior_weights(similarities, nearest, scale))
    return sample_ends, task_endpoints(transformed, priors, similarities, nearest, scale)


def mix(normalised: Array, sample_ends: Array, task_ends: Array, alpha: Array | float, beta: Array | float) -> Array:
    """Mix a sample with its normalised endpoints."""
    alpha, beta = plain(alpha), plain(beta)
    return (1 - alpha - beta) * normalised + alpha * l2_normalize(sample_ends) + beta * l2_normalize(task_ends)


def classify(queries: Array, calibrated: Array, present: Array | None = None, attention: Attention = "raw") -> Array:
    """Score every class for every query: the second half of the paper in one call.

    (..., Q, D), (..., N, K, D), mask (..., N, K) -> (..., Q, N)
    """
    weights = attention_weights(queries, calibrated, present, attention)
    return cosine_scores(queries, attentive_prototypes(weights, calibrated))


def vector_norm(x: Array) -> Array:
    """Return the length of each vector, also where its square overflows or underflows.

    (..., D) -> (...)
    """
    norm, factor = _norm_in_range(x)
    return norm if factor is None else norm / factor


def _nth_largest(values: Array, n: int) -> Array:
    """Return the n-th largest value of each row, (..., B) -> (...). NumPy need not sort for it."""
    place = values.shape[-1] - n
    sorting = array_namespace(values).sort if is_tensor(values) else partial(np.partition, kth=place)
    return sorting(values, axis=-1)[..., place]


def _norm_in_range(x: Array) -> tuple[Array, Array | None]:
    """Return the length of each vector after a power of two has brought it into the range of squares, and that power.

    Where no square overflows or loses digits there is no power.

    (..., D) -> (...), (...) or None
    """
    xp = array_namespace(x)
    limits = xp.finfo(x.dtype)
    with np.errstate(over="ignore", under="ignore"):
        squares = xp.vecdot(x, x)
    outside = (squares < limits.tiny / limits.eps) | (squares == xp.inf)
    if not xp.any(outside):
        return xp.sqrt(squares), None
    largest = xp.max(xp.abs(x), axis=-1).clip(min=limits.tiny)
    factor = 2.0 ** -xp.floor(xp.log2(xp.where(outside, largest, xp.ones_like(largest))))
    scaled = x * factor[..., None]
    return xp.sqrt(xp.vecdot(scaled, scaled)), factor


def plain(number: Array | float) -> Array | float:
    """Turn the number of any library into Python's, which takes the type of the array that it meets."""
    return float(number) if isinstance(number, Real) else number


def masked_softmax(logits: Array, mask: Array | None) -> Array:
    """Softmax over the last axis; zero where the mask is false."""
    xp = array_namespace(logits)
    if mask is not None:
        logits = xp.where(mask, logits, -xp.inf)
    weights = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return weights / xp.sum(weights, axis=-1, keepdims=True)
