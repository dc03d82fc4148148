"""Mix and attend, Eq. (11) to (14), from inner products alone, for many tasks at many (α, β).

α and β enter where the three corners x̄, s̄ and t̄ of a sample's triangle are mixed, and nowhere before. So every score at
every (α, β) follows from the products of the queries with the corners and of the corners with each other.

The arrays may come from NumPy or from torch. Shape letters: T tasks, N ways, K shots, Q queries of a task, V corners,
G points.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from p3dc._arrays import Array, is_tensor
from p3dc.method import Attention, l2_normalize, vector_norm


class Corners(NamedTuple):
    """Inner products of some tasks, from which the scores at every point follow.

    Attributes
    ----------
    products : array of shape (T, Q, N, K, V)
        Queries with corners.
    grams : array of shape (T, N, K, V, K, V)
        Corners of one class with each other.
    mix : array of shape (V, G)
        The weight of each corner at each point.
    lengths : array of shape (T, Q)
        Lengths of the queries.
    """

    products: Array
    grams: Array
    mix: Array
    lengths: Array


def inner_products(corners: Array, queries: Array, mix: Array, n_way: int) -> Corners:
    """Multiply the corners of tasks, (T, N * K, V, D), with their queries, (T, Q, D), and with each other."""
    xp = array_namespace(corners)
    n_tasks, n_support, n_corners, width = corners.shape
    n_shot = n_support // n_way
    products = queries @ xp.reshape(corners, (n_tasks, -1, width)).mT
    by_class = xp.reshape(corners, (n_tasks, n_way, -1, width))
    lengths = vector_norm(queries)
    return Corners(
        xp.reshape(products, (n_tasks, -1, n_way, n_shot, n_corners)),
        xp.reshape(by_class @ by_class.mT, (n_tasks, n_way, n_shot, n_corners, n_shot, n_corners)),
        mix,
        xp.where(lengths == 0, xp.ones_like(lengths), lengths),  # a query can lie in the centre of its task
    )


def triangle(normalised: Array, sample_ends: Array, task_ends: Array) -> Array:
    """Stack the corners x̄, s̄ and t̄ of each sample, (..., S, D) each -> (..., S, 3, D)."""
    xp = array_namespace(normalised)
    return xp.stack([normalised, l2_normalize(sample_ends), l2_normalize(task_ends)], axis=-2)


def corner_weights(alpha: Array, beta: Array) -> Array:
    """Return the weights of the corners x̄, s̄ and t̄ at each point, (G,), (G,) -> (3, G)."""
    return array_namespace(alpha).stack([1 - alpha - beta, alpha, beta])


def mix_and_attend(
    products: Array, grams: Array, mix: Array, *, uniform: bool = False, bounded: bool = False
) -> tuple[Array, Array]:
    """Mix the corners of each sample, attend to the samples of each class and score it.

    Parameters
    ----------
    products, grams, mix
        As in :class:`Corners`.
    uniform : bool
        Whether all samples of a class weigh the same.
    bounded : bool
        Whether queries are so short that no square of an exponential overflows.

    Returns
    -------
    scores : array of shape (T, N, Q, G)
        Inner products of the queries with the normalised prototypes.
    lengths : array of shape (T, N, K, G)
        Lengths of the mixed samples before they are normalised.
    """
    xp = array_namespace(products)
    n_tasks, _, n_way, n_shot, n_corners = products.shape
    pairs = xp.reshape(mix[:, None] * mix, (n_corners**2, -1))
    by_sample = xp.reshape(xp.permute_dims(grams, (0, 1, 2, 4, 3, 5)), (n_tasks, n_way, n_shot, n_shot, n_corners**2))
    kernel = by_sample @ pairs
    squared = xp.stack([kernel[:, :, k, k] for k in range(n_shot)], axis=2)
    lengths = xp.sqrt(squared.clip(min=xp.finfo(kernel.dtype).tiny))
    by_class, weights = xp.permute_dims(products, (0, 2, 3, 1, 4)), mix / lengths[..., None, :]
    logits = by_class * weights if n_corners == 1 and is_tensor(products) else by_class @ weights
    if n_shot == 1:
        return logits[:, :, 0], lengths
    kernel /= lengths[:, :, :, None] * lengths[:, :, None]
    if uniform:
        return xp.sum(logits, axis=2) / xp.sqrt(xp.sum(kernel, axis=(2, 3)))[:, :, None], lengths
    # The weights need not sum to one: a prototype's length and its product with the query grow with their sum alike.
    weights = xp.exp(logits if bounded else logits - xp.max(logits, axis=2, keepdims=True))
    logits *= weights
    return xp.sum(logits, axis=2) / xp.sqrt(_squared_lengths(weights, kernel)), lengths


def score_corners(
    corners: Corners, attention: Attention, attend: Callable[..., tuple[Array, Any]] = mix_and_attend
) -> tuple[Array, Any]:
    """Return the cosines of queries to the classes, (T, N, Q, G), and what else ``attend`` returns.

    ``attend`` is :func:`mix_and_attend`, or calls it on parts. Lengths of the queries matter to raw attention alone.
    """
    products, grams, mix, lengths = corners
    if attention != "raw":
        products = products / lengths[:, :, None, None, None]
    scores, more = attend(products, grams, mix, uniform=attention == "mean")
    if attention == "raw":
        scores /= lengths[:, None, :, None]
    return scores, more


def _squared_lengths(weights: Array, kernel: Array) -> Array:
    """Return squared lengths of weighted sums of samples, (T, N, K, Q, G), (T, N, K, K, G) -> (T, N, Q, G).

    NumPy is fastest with matrix products, a GPU with a loop that never copies.
    """
    xp = array_namespace(weights)
    if not is_tensor(weights):
        by_point, kernels = (xp.permute_dims(array, (0, 1, 4, 2, 3)).copy() for array in (weights, kernel))
        return xp.permute_dims(xp.sum(kernels @ by_point * by_point, axis=3), (0, 1, 3, 2))
    squared = weights[:, :, 0] * weights[:, :, 0]
    for k in range(1, weights.shape[2]):
        row = weights[:, :, k]
        for other in range(k):
            row = xp.addcmul(row, kernel[:, :, k, other, None], weights[:, :, other], value=2)
        squared.addcmul_(row, weights[:, :, k])
    return squared
