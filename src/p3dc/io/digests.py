"""Digests of what a file holds, kept in it and checked when it is read: damage is refused, not used."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]


def array_digest(array: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of an array: of its type, shape and numbers.

    Examples
    --------
    >>> import numpy as np
    >>> row = np.array([1.0, 2.0])
    >>> array_digest(row) == array_digest(row.copy()), array_digest(row) == array_digest(row[None])
    (True, False)
    """
    found = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    if array.nbytes:
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def array_digests(arrays: Arrays) -> dict[str, str]:
    """Return the digest of each of some named arrays."""
    return {name: array_digest(array) for name, array in sorted(arrays.items())}


def json_digest(content: object) -> str:
    """Return the SHA-256 of what JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
