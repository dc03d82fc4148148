"""Clusters of rows without labels, which serve as base classes."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Floats, Progress, row_blocks
from p3dc._validation import as_rows, check_count, check_same_width
from p3dc.errors import InputError
from p3dc.method import l2_normalize
from p3dc.priors.sums import ClassSums

FEWEST, MOST = 8, 1024
SAMPLE_ROWS = 100 * MOST
SAMPLE_BYTES = 2**29
ROUNDS = 20


def cluster_number(n_rows: int) -> int:
    """Choose the number of clusters: the root of the number of rows. Half and twice as many gain about as much."""
    return int(np.clip(round(n_rows**0.5), min(FEWEST, n_rows), MOST))


def learn_centres(
    batches: Iterable[npt.ArrayLike], n_clusters: int | None = None, seed: int = 0
) -> tuple[npt.NDArray[np.float32], int]:
    """Learn the centres of clusters, (K, D), from an even sample of directions; return them and the number of rows."""
    from sklearn.cluster import kmeans_plusplus  # slow to import, and not needed to predict

    if n_clusters is not None:
        check_count("n_clusters", n_clusters, 1)
    rng = np.random.default_rng(seed)
    sample, n_rows = _sample_directions(batches, rng)
    number = cluster_number(n_rows) if n_clusters is None else n_clusters
    if number > len(sample):
        raise InputError(f"n_clusters is {number}, but clusters are learned from {len(sample)} rows. Ask for fewer.")
    some = sample[rng.choice(len(sample), min(len(sample), 10 * number), replace=False)]
    start, _ = kmeans_plusplus(some, number, random_state=seed)
    return _spherical_k_means(sample, start), n_rows


def _spherical_k_means(sample: npt.NDArray[np.float32], centres: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Move each centre to the mean direction of the rows that are most similar to it, some rounds.

    Plain k-means leaves many clusters with a single row: the mean of many rows is short, and so near to all.
    """
    for _ in range(ROUNDS):
        totals = np.zeros_like(centres)
        for _, block in row_blocks(sample):
            nearest = (block @ centres.T).argmax(axis=1)
            order = np.argsort(nearest, kind="stable")
            present, first = np.unique(nearest[order], return_index=True)
            totals[present] += np.add.reduceat(block[order], first, axis=0)
        moved = np.where(totals.any(axis=1, keepdims=True), l2_normalize(totals), centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres


def sum_clusters(
    batches: Iterable[npt.ArrayLike],
    centres: npt.NDArray[np.float32],
    n_rows: int = 0,
    progress: Progress | None = None,
) -> ClassSums:
    """Sum the rows of each cluster; ``progress`` is called with the number of rows summed and of all rows."""
    sums, n_done = ClassSums(), 0
    for rows in _with_directions(batches):
        check_same_width(rows, "some rows", centres, "the centres of clusters")
        nearest = [(_directions(block) @ centres.T).argmax(axis=1) for _, block in row_blocks(rows)]
        sums.add_rows(rows, np.concatenate(nearest), clusters=True)
        n_done += len(rows)
        if progress:
            progress(n_done, n_rows)
    return sums


def _sample_directions(
    batches: Iterable[npt.ArrayLike], rng: np.random.Generator
) -> tuple[npt.NDArray[np.float32], int]:
    """Sample directions evenly from rows in any order, and count the rows: reservoir sampling."""
    sample, n_rows = np.empty((0, 0), dtype=np.float32), 0
    for rows in _with_directions(batches):
        if not n_rows:
            size = min(SAMPLE_ROWS, SAMPLE_BYTES // (4 * rows.shape[1]))
            sample = np.empty((size, rows.shape[1]), dtype=np.float32)
        check_same_width(rows, "some rows", sample, "those before")
        numbers = np.arange(n_rows, n_rows + len(rows))
        places = np.where(numbers < len(sample), numbers, (rng.random(len(rows)) * (numbers + 1)).astype(np.int64))
        kept = np.flatnonzero(places < len(sample))
        sample[places[kept]] = _directions(rows[kept])  # of rows for the same place the last stays
        n_rows += len(rows)
    if not n_rows:
        raise InputError("there are no rows to cluster. Give at least one that is not all zeros.")
    return sample[:n_rows], n_rows


def _with_directions(batches: Iterable[npt.ArrayLike]) -> Iterator[Floats]:
    """Yield the rows that are not all zeros, of batches that have any."""
    for batch in batches:
        if np.size(batch):
            rows = as_rows(batch, "features")
            nonzero = rows.any(axis=1)
            if nonzero.any():
                yield rows if nonzero.all() else rows[nonzero]


def _directions(rows: Floats) -> npt.NDArray[np.float32]:
    directions: npt.NDArray[np.float32] = l2_normalize(rows.astype(np.float64)).astype(np.float32)
    return directions
