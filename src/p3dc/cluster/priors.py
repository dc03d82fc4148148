"""Priors from the sums of parts, on a Ray cluster."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

from p3dc._arrays import Progress
from p3dc.cluster.connection import SHARES, load_ray, n_workers, on_one_core, plain_errors
from p3dc.features import feature_parts, stream_features
from p3dc.priors.prototypes import Priors
from p3dc.priors.sums import ClassSums

JOINED = 8
"""Sums that a process joins, and so holds, at once."""


def average(path: str | os.PathLike[str], progress: Progress | None = None) -> Priors:
    """Average the features of each class on the connected Ray cluster.

    Each process sums the rows of some parts; the sums are joined in a tree, and the geometry is learned from the total.

    Parameters
    ----------
    path : path
        Features as :func:`p3dc.features.stream_features` reads them, at a path that every machine sees.
    progress : callable, optional
        Called with the number of parts summed and of all parts.

    Returns
    -------
    Priors
        Those of :meth:`Priors.from_batches`, up to rounding.
    """
    ray = load_ray()
    parts = [part.absolute() for part in feature_parts(path)]
    n_shares = min(len(parts), SHARES * n_workers())
    bounds = [len(parts) * share // n_shares for share in range(n_shares + 1)]
    pending = [on_one_core(_sum).remote(parts[start:stop]) for start, stop in pairwise(bounds)]
    total = _tree(pending)
    with plain_errors():
        for n_done in range(1, n_shares + 1):
            _, pending = ray.wait(pending, fetch_local=False)
            if progress:
                progress(bounds[n_done], len(parts))
        sums: ClassSums = ray.get(total)
    return Priors.from_sums(sums)


def _tree(sums: list[Any]) -> Any:
    """Join pending sums, some at a time, and release those that are joined."""
    while len(sums) > 1:
        sums = [on_one_core(_join).remote(*sums[start : start + JOINED]) for start in range(0, len(sums), JOINED)]
    return sums[0]


def _sum(parts: list[Path]) -> ClassSums:
    return ClassSums.of_batches((rows, labels) for part in parts for rows, labels, _ in stream_features(part))


def _join(*parts: ClassSums) -> ClassSums:
    total = ClassSums()
    for part in parts:
        total.join(part)
    return total
