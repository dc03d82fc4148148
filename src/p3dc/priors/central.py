"""The most central rows of clusters, shown where a class would show its name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Floats, Labels, Rows
from p3dc.io.pieces import join_pieces, split_pieces

N_CENTRAL = 3
"""How many rows are kept for each cluster."""

THUMBNAILS = ("central_thumbnails", "central_sizes")


@dataclass(frozen=True)
class CentralRow:
    """A row near the centre of its cluster.

    Attributes
    ----------
    key : str
        Its name: a path, an id, or the number of the row.
    thumbnail : bytes
        A small JPEG of the photo that it is of, or nothing.
    """

    key: str
    thumbnail: bytes = b""


Central = tuple[tuple[CentralRow, ...], ...]
"""The most central rows of each prototype, the most central first; those of a class with a name are not kept."""


def most_central(clusters: Labels, cosines: Floats) -> Rows:
    """Return the numbers of the most central rows of each cluster, from the cluster of each row and its cosine to it.

    Examples
    --------
    >>> import numpy as np
    >>> most_central(np.array([1, 0, 1, 1, 1]), np.array([0.5, 0.1, 0.9, 0.2, 0.8]))
    array([1, 2, 4, 0])
    """
    order = np.lexsort((-cosines, clusters))
    _, first, sizes = np.unique(clusters[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(first, sizes)
    return order[rank < N_CENTRAL]


def pack_central(central: Central) -> tuple[dict[str, npt.NDArray[Any]], list[list[str]]]:
    """Take central rows apart: thumbnails as arrays by name, if there are any, and the keys for each prototype."""
    keys = [[row.key for row in rows] for rows in central]
    thumbnails = [row.thumbnail for rows in central for row in rows]
    return dict(zip(THUMBNAILS, join_pieces(thumbnails), strict=True)) if any(thumbnails) else {}, keys


def unpack_central(arrays: Mapping[str, npt.NDArray[Any]], keys: Any, n_base: int) -> Central:
    """Put together what :func:`pack_central` took apart; raise ValueError where it does not fit together."""
    whole = isinstance(keys, list) and len(keys) == n_base and all(isinstance(own, list) for own in keys)
    if not whole or not all(isinstance(key, str) for own in keys for key in own):
        raise ValueError("its clusters and their central rows do not fit together")
    if len(arrays.keys() & set(THUMBNAILS)) == 1:
        raise ValueError("its thumbnails do not fit together")
    n_rows = sum(map(len, keys))
    joined, sizes = (arrays.get(name) for name in THUMBNAILS)
    thumbnails = [b""] * n_rows if joined is None or sizes is None else split_pieces(joined, sizes, n_rows)
    rows = map(CentralRow, (key for own in keys for key in own), thumbnails)
    return tuple(tuple(next(rows) for _ in own) for own in keys)
