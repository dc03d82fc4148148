"""Many pieces of bytes, thumbnails for example, as two arrays of a safetensors file."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def join_pieces(pieces: Sequence[bytes]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of all pieces, one after the other, and the size of each.

    Examples
    --------
    >>> joined, sizes = join_pieces([b"ab", b"", b"c"])
    >>> split_pieces(joined, sizes, 3)
    [b'ab', b'', b'c']
    """
    sizes = np.array([len(piece) for piece in pieces], dtype=np.int64)
    return np.frombuffer(b"".join(pieces), dtype=np.uint8), sizes


def split_pieces(joined: npt.NDArray[Any], sizes: npt.NDArray[Any], n_pieces: int) -> list[bytes]:
    """Put together what :func:`join_pieces` took apart; raise ValueError where it does not fit together."""
    whole = joined.ndim == 1 and joined.dtype == np.uint8 and sizes.shape == (n_pieces,) and sizes.dtype.kind == "i"
    if not whole or sizes.min(initial=0) < 0 or sizes.sum() != len(joined):
        raise ValueError("its thumbnails do not fit together")
    return [piece.tobytes() for piece in np.split(joined, np.cumsum(sizes)[:-1])] if n_pieces else []
