"""Clusters of rows without labels, which serve as base classes.

Rows of NumPy are clustered with NumPy, and tensors with torch, where they are.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device

from p3dc._arrays import Array, Floats, Labels, Progress, as_numpy, is_tensor, row_blocks, to_device_of
from p3dc._validation import as_rows, check_count, check_finite, check_same_width
from p3dc.errors import InputError
from p3dc.method import l2_normalize
from p3dc.priors.central import most_central
from p3dc.priors.sums import ClassSums, sum_by_code

FEWEST, MOST = 8, 1024
SAMPLE_ROWS = 100 * MOST
SAMPLE_BYTES = 2**29
ROUNDS = 20

Batch = npt.ArrayLike | tuple[npt.ArrayLike, Sequence[str]]
"""Rows, (n, D); or a tuple of rows and their keys."""


def cluster_number(n_rows: int) -> int:
    """Choose the number of clusters: the root of the number of rows. Half and twice as many gain about as much."""
    return int(np.clip(round(n_rows**0.5), min(FEWEST, n_rows), MOST))


def learn_centres(batches: Iterable[Batch], n_clusters: int | None = None, seed: int = 0) -> tuple[Array, int]:
    """Learn the centres of clusters, (K, D), from an even sample of directions; return them and the number of rows."""
    from sklearn.cluster import kmeans_plusplus  # slow to import, and not needed to predict

    if n_clusters is not None:
        check_count("n_clusters", n_clusters, 1)
    rng = np.random.default_rng(seed)
    sample, n_rows = _sample_directions(batches, rng)
    number = cluster_number(n_rows) if n_clusters is None else n_clusters
    if number > len(sample):
        raise InputError(f"n_clusters is {number}, but clusters are learned from {len(sample)} rows. Ask for fewer.")
    some = as_numpy(sample[rng.choice(len(sample), min(len(sample), 10 * number), replace=False)])
    start, _ = kmeans_plusplus(some, number, random_state=seed)
    return _spherical_k_means(sample, to_device_of(start, sample)), n_rows


def _spherical_k_means(sample: Array, centres: Array) -> Array:
    """Move each centre to the mean direction of the rows that are most similar to it, some rounds.

    Plain k-means leaves many clusters with a single row: the mean of many rows is short, and so near to all.
    """
    xp = array_namespace(sample)
    for _ in range(ROUNDS):
        totals = xp.zeros_like(centres)
        for _, block in row_blocks(sample):
            totals += sum_by_code(block, xp.argmax(block @ centres.T, axis=1), len(centres))
        moved = xp.where(xp.any(totals != 0, axis=1, keepdims=True), l2_normalize(totals), centres)
        if bool(xp.all(moved == centres)):
            break
        centres = moved
    return centres


def sum_clusters(
    batches: Iterable[Batch], centres: Array, n_rows: int = 0, progress: Progress | None = None
) -> ClassSums:
    """Sum the rows of each cluster, and remember its most central rows.

    ``progress`` is called with the number of rows summed and of all rows.
    """
    sums, n_done = ClassSums(), 0
    for rows, keys in _with_directions(batches):
        check_same_width(rows, "some rows", centres, "the centres of clusters")
        near = to_device_of(centres, rows).T
        found = [_nearest(_directions(block) @ near) for _, block in row_blocks(rows)]
        nearest, central = (np.concatenate(parts) for parts in zip(*found, strict=True))
        sums.add_rows(rows, nearest, clusters=True)
        for row in most_central(nearest, central):
            sums.add_central(int(nearest[row]), [(float(central[row]), str(keys[row]))])
        n_done += len(rows)
        if progress:
            progress(n_done, n_rows)
    return sums


def _nearest(cosines: Array) -> tuple[Labels, Floats]:
    """Return the cluster that each row is nearest to, and the cosine to its centre, (n, K) -> (n,) and (n,)."""
    xp = array_namespace(cosines)
    return as_numpy(xp.argmax(cosines, axis=1)), as_numpy(xp.max(cosines, axis=1))


def _sample_directions(batches: Iterable[Batch], rng: np.random.Generator) -> tuple[Array, int]:
    """Sample directions evenly from rows in any order, and count the rows: reservoir sampling."""
    sample, n_rows = np.empty((0, 0), dtype=np.float32), 0
    for rows, _ in _with_directions(batches):
        if not n_rows:
            size = min(SAMPLE_ROWS, SAMPLE_BYTES // (4 * rows.shape[1]))
            xp = array_namespace(rows)
            sample = xp.empty((size, rows.shape[1]), dtype=xp.float32, device=device(rows))
        check_same_width(rows, "some rows", sample, "those before")
        numbers = np.arange(n_rows, n_rows + len(rows))
        places = np.where(numbers < len(sample), numbers, (rng.random(len(rows)) * (numbers + 1)).astype(np.int64))
        taken, last = np.unique(places[::-1], return_index=True)  # of rows for the same place the last stays
        kept = taken < len(sample)
        sample[taken[kept]] = _directions(rows[len(rows) - 1 - last[kept]])
        n_rows += len(rows)
    if not n_rows:
        raise InputError("there are no rows to cluster. Give at least one that is not all zeros.")
    return sample[:n_rows], n_rows


def _with_directions(batches: Iterable[Batch]) -> Iterator[tuple[Array, npt.NDArray[Any]]]:
    """Yield the rows that are not all zeros, of batches that have any, and their keys or else their numbers."""
    n_before = 0
    for batch in batches:
        given, keys = batch if isinstance(batch, tuple) else (batch, None)
        if not (is_tensor(given) and len(given)) and not np.size(given):
            continue
        rows = as_array(given)
        names = np.arange(n_before, n_before + len(rows)) if keys is None else np.asarray(keys)
        if len(names) != len(rows):
            raise InputError(f"there are {len(rows)} rows and {len(names)} keys. Give one key a row.")
        n_before += len(rows)
        nonzero = (rows != 0).any(axis=1)
        if nonzero.all():
            yield rows, names
        elif nonzero.any():
            yield rows[nonzero], names[as_numpy(nonzero)]


def as_array(rows: Any) -> Array:
    """Return rows as floats without NaN or infinity, on the device that they are on."""
    if not is_tensor(rows):
        return as_rows(rows, "features")
    if rows.ndim != 2:
        raise InputError(f"features have shape {tuple(rows.shape)}. They must have two axes: one row a sample.")
    check_finite(rows, "features")
    return rows.detach() if rows.is_floating_point() else rows.double()


def _directions(rows: Array) -> Array:
    xp = array_namespace(rows)
    return xp.astype(l2_normalize(xp.astype(rows, xp.float64)), xp.float32)
