"""Priors from the sums of parts, on the processes of a Ray."""

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from p3dc.cluster.connection import SHARES, load_ray, n_workers, on_one_core, plain_errors
from p3dc.features import feature_parts, stream_features
from p3dc.priors.prototypes import Priors
from p3dc.priors.sums import ClassSums

JOINED = 8
"""Sums that are joined at once, and so how many a process holds."""


def average(path: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> Priors:
    """Average the features of each class on a Ray that is joined.

    Each process sums the rows of some parts; the sums are joined in a tree, and the geometry is learned from the total.

    Parameters
    ----------
    path : path
        Features as :func:`p3dc.features.stream_features` reads them, where every machine sees them.
    progress : callable, optional
        Called with the number of parts summed and of all parts.

    Returns
    -------
    Priors
        Those of :meth:`Priors.from_batches` but for rounding.
    """
    ray = load_ray()
    parts = [part.absolute() for part in feature_parts(path)]
    n_shares = min(len(parts), SHARES * n_workers())
    bounds = [len(parts) * share // n_shares for share in range(n_shares + 1)]
    waiting = [on_one_core(_sum).remote(parts[start:stop]) for start, stop in pairwise(bounds)]
    total = _tree(waiting)
    with plain_errors():
        for n_done in range(1, n_shares + 1):
            _, waiting = ray.wait(waiting, fetch_local=False)
            if progress:
                progress(bounds[n_done], len(parts))
        sums: ClassSums = ray.get(total)
    return Priors.from_sums(sums)


def _tree(sums: list[Any]) -> Any:
    """Join sums that are still being made, some at a time; those that are joined are let go."""
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
