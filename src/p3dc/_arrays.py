"""Shared type aliases, and arrays of NumPy and of torch side by side."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device, is_torch_array

Array = Any
"""An array of any library that follows the Array API; NumPy and torch are tested."""

Floats = npt.NDArray[np.floating]
Labels = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
"""Row numbers."""

Progress = Callable[[int, int], None]
"""Called now and then with the number of steps done and the number of all."""

BLOCK_BYTES = 2**24


def row_blocks(rows: Floats) -> Iterator[tuple[int, Floats]]:
    """Cut rows into blocks of bounded size, each with the number of its first row."""
    size = max(1, BLOCK_BYTES // max(1, 8 * rows.shape[1]))
    for start in range(0, len(rows), size):
        yield start, rows[start : start + size]


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view of an array that cannot be written to."""
    view = array.view()
    view.setflags(write=False)
    return view


def is_tensor(values: Any) -> bool:
    """Return whether values are a torch tensor."""
    return bool(is_torch_array(values))


def as_numpy(values: Any) -> Any:
    """Copy a tensor from its device to NumPy, bfloat16 as float32; leave everything else as it is."""
    if not is_tensor(values):
        return values
    return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy(force=True)


def stack_rows(rows: Any) -> npt.NDArray[Any]:
    """Return rows as one array: tensors, a column whose entries are vectors, and bfloat16 as float32 too."""
    if isinstance(rows, list | tuple) and any(map(is_tensor, rows)):
        rows = [as_numpy(row) for row in rows]
    array = np.asarray(as_numpy(rows))
    if array.dtype == object and (array.ndim == 1 or array.shape[1:] == (1,)) and len(array):
        array = np.stack([stack_rows(entry) for entry in array.flat])
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def to_device_of(values: Array, other: Array, dtype: Any = None) -> Array:
    """Move an array to the library and device of another, in its own type or in a given one."""
    xp = array_namespace(other)
    if not is_tensor(other):
        return np.asarray(as_numpy(values), dtype=dtype)
    if not is_tensor(values):
        values = xp.asarray(np.array(values))  # a copy, since torch cannot hold read-only memory
    return values.to(device=device(other), dtype=dtype or values.dtype)
