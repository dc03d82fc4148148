"""Priors from the sums of parts, on a Ray cluster."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Progress
from p3dc.cluster.connection import SHARES, load_ray, n_workers, on_one_core, plain_errors
from p3dc.features import feature_parts, stream_features, stream_keyed
from p3dc.io.store import Address, Location
from p3dc.priors.prototypes import Priors
from p3dc.priors.sums import ClassSums
from p3dc.priors.unlabelled import learn_centres, sum_clusters

JOINED = 8
"""Sums that a process joins, and so holds, at once."""


def average(path: Address, progress: Progress | None = None) -> Priors:
    """Average the features of each class on the connected Ray cluster.

    Each process sums the rows of some parts; the sums are joined in a tree, and the geometry is learned from the total.

    Parameters
    ----------
    path : path
        Features as :func:`p3dc.features.stream_features` reads them, in a store or at a path that every machine sees.
    progress : callable, optional
        Called with the number of parts summed and of all parts.

    Returns
    -------
    Priors
        Those of :meth:`Priors.from_batches`, up to rounding.
    """
    return Priors.from_sums(_sum_parts([path], None, progress))


def average_unlabelled(paths: Sequence[Address], progress: Progress | None = None) -> Priors:
    """Average clusters of all rows, whatever their labels: those of :meth:`Priors.from_unlabelled`, up to rounding.

    The centres are learned in this process, from a sample of all rows; the rows of each cluster are summed on the
    connected Ray cluster as :func:`average` sums those of classes.
    """
    centres, _ = learn_centres(batch for path in paths for batch in stream_keyed(path))
    return Priors.from_sums(_sum_parts(paths, load_ray().put(centres), progress))


def _sum_parts(paths: Sequence[Address], centres: Any, progress: Progress | None) -> ClassSums:
    """Sum the rows of each class, or of each cluster where there are centres."""
    ray = load_ray()
    parts = [part.absolute() for path in paths for part in feature_parts(path)]
    n_shares = min(len(parts), SHARES * n_workers())
    bounds = [len(parts) * share // n_shares for share in range(n_shares + 1)]
    pending = [on_one_core(_sum).remote(parts[start:stop], centres) for start, stop in pairwise(bounds)]
    total = _tree(pending)
    with plain_errors():
        for n_done in range(1, n_shares + 1):
            _, pending = ray.wait(pending, fetch_local=False)
            if progress:
                progress(bounds[n_done], len(parts))
        sums: ClassSums = ray.get(total)
    return sums


def _tree(sums: list[Any]) -> Any:
    """Join pending sums, some at a time, and release those that are joined."""
    while len(sums) > 1:
        sums = [on_one_core(_join).remote(*sums[start : start + JOINED]) for start in range(0, len(sums), JOINED)]
    return sums[0]


def _sum(parts: list[Location], centres: npt.NDArray[np.float32] | None) -> ClassSums:
    if centres is not None:
        return sum_clusters((batch for part in parts for batch in stream_keyed(part)), centres)
    return ClassSums.of_batches((rows, labels) for part in parts for rows, labels, _ in stream_features(part))


def _join(*parts: ClassSums) -> ClassSums:
    total = ClassSums()
    for part in parts:
        total.join(part)
    return total
