"""Arrays of NumPy and tensors of torch side by side."""

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_torch_array

Array = Any


def is_tensor(values: Any) -> bool:
    """Tell whether values are a tensor of torch."""
    return bool(is_torch_array(values))


def as_numpy(values: Any) -> Any:
    """Bring a tensor from wherever it is to NumPy; leave all else as it is."""
    return values.numpy(force=True) if is_tensor(values) else values


def to_device_of(values: Array, other: Array, dtype: Any = None) -> Array:
    """Bring an array to where another is, NumPy or a device of torch, in its own type or in another."""
    xp = array_namespace(other)
    if not is_tensor(other):
        return np.asarray(as_numpy(values), dtype=dtype)
    if not is_tensor(values):
        values = xp.asarray(np.array(values))  # a copy, since torch cannot hold what is read-only
    return values.to(device=device(other), dtype=dtype or values.dtype)
