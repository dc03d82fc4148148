"""Devices of torch, and planning how much of their memory is used."""

import re
from typing import Any, NamedTuple

from p3dc._validation import is_number
from p3dc.errors import InputError

FLOAT_BYTES = 8
TENSOR_SHARE = 0.9
"""Share of the memory that tensors may take; torch itself holds the rest."""

SHARE = 0.5
"""Share of the free memory of a GPU that is used by default."""

CPU_BYTES = 2**30
"""Bytes that torch on the CPU uses by default, where memory is shared with everything else."""

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}

Memory = float | str
"""Bytes; a share of the free memory, from 0 to 1; or text such as "2GB"."""


class Device(NamedTuple):
    """A device of torch and the bytes that may be used on it."""

    torch: Any
    memory: int


class Budget:
    """Keeps account of the memory of a device.

    Parameters
    ----------
    device : Device

    Attributes
    ----------
    room : int
        Bytes that are left.
    """

    def __init__(self, device: Device) -> None:
        self.device, self.room = device, int(TENSOR_SHARE * device.memory)

    def reserve(self, numbers: int) -> None:
        """Take memory for this many numbers that stay on the device."""
        if FLOAT_BYTES * numbers >= self.room:
            raise InputError(
                f"features and priors take {FLOAT_BYTES * numbers:,} bytes, but {self.device.memory:,} may be used. "
                "Raise memory, or leave the device out."
            )
        self.room -= FLOAT_BYTES * numbers

    def batch_size(self, numbers: int) -> int:
        """Return how many tasks fit at once, if one takes this many numbers."""
        needed = FLOAT_BYTES * numbers
        if needed > self.room:
            raise InputError(
                f"one task takes {needed:,} bytes, but of the {self.device.memory:,} that may be used {self.room:,} "
                "are left for tasks. Raise memory, or leave the device out."
            )
        return self.room // needed


def open_device(name: str | None, memory: Memory | None = None) -> Device | None:
    """Return the device of a name, "cpu", "cuda" or "cuda:1"; None stands for NumPy.

    Examples
    --------
    >>> from p3dc.scoring.device_memory import open_device
    >>> open_device("tpu")
    Traceback (most recent call last):
    ...
    p3dc.errors.InputError: device is 'tpu'. It must be 'cpu', 'cuda', or one of several GPUs such as 'cuda:1'.
    """
    if name is None:
        if memory is not None:
            raise InputError(f"memory is {memory!r}, but no device is given. Give a device too, 'cuda' for example.")
        return None
    if not re.fullmatch(r"cpu|cuda(:\d+)?", str(name)):
        raise InputError(f"device is {name!r}. It must be 'cpu', 'cuda', or one of several GPUs such as 'cuda:1'.")
    try:
        import torch
    except ImportError:
        raise InputError(
            f'device {name!r} needs torch, which is not installed. Install it: pip install "p3dc-shot[torch]"'
        ) from None
    device = torch.device(name)
    if device.type == "cpu":
        return Device(device, _bytes(memory, CPU_BYTES, CPU_BYTES))
    if not torch.cuda.is_available():
        raise InputError(f"device is {name!r}, but torch finds no GPU here. Leave it out to compute on the CPU.")
    n_devices = torch.cuda.device_count()
    if (device.index or 0) >= n_devices:
        raise InputError(f"device is {name!r}, but the last GPU here is 'cuda:{n_devices - 1}'. Give one that exists.")
    free = torch.cuda.mem_get_info(device)[0]
    return Device(device, _bytes(memory, free, int(SHARE * free)))


def _bytes(memory: Memory | None, free: int, default: int) -> int:
    """Convert what a user gives as memory into bytes."""
    if memory is None:
        return default
    number: Any = memory
    if isinstance(memory, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?)?b?\s*", memory.lower())
        number = float(found[1]) * UNITS[found[2] or ""] if found else None
    if not is_number(number) or number <= 0:
        raise InputError(f"memory is {memory!r}. It must be bytes, a share of the free memory, or text such as '2GB'.")
    return int(number * free) if number <= 1 else int(number)
