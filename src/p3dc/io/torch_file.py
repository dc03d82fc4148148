"""Reader of torch's files of named tensors, without torch and without running anything from them.

There are two formats. The old one is five pickles (a magic number, a version, facts about the machine, the content, the
keys of the storages) and then the storages, each after its number of elements. The new one is a zip of ``data.pkl`` and
one file for each storage.
"""

import io
import math
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import numpy as np

from p3dc._arrays import Array
from p3dc.errors import InputError
from p3dc.io.atomic import damaged
from p3dc.io.restricted_pickle import MOST_GROWTH, Buildable, Rules, StandIn, stand_ins, type_name, unpickle

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001
STORAGES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "|b1",
}


@dataclass(frozen=True)
class _Storage:
    key: str
    dtype: np.dtype[Any]
    count: int


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.storage.dtype.itemsize


class _StateDict(dict[str, Any], Buildable):
    """A state dict. Its own state holds facts about the modules, none of them a tensor."""

    __slots__ = ()

    def set_state(self, state: object) -> None:
        """Ignore the facts."""


def read_tensors(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read a file of named tensors that ``torch.save`` wrote, such as a network's state dict.

    The arrays are contiguous and in the order of the file. Anything but named tensors is refused.
    """
    try:
        content = Path(path).read_bytes()
        read = _read_zip if content.startswith(b"PK") else _read_old
        tensors, storages = read(content)
        if not {tensor.storage.key for tensor in tensors.values()} <= set(storages):
            raise InputError("it lacks storages of its tensors")
        return {name: _array(tensor, storages[tensor.storage.key]) for name, tensor in tensors.items()}
    except InputError as error:
        raise InputError(f"{path} was refused and nothing in it was run: {error}. Save only a state dict.") from None
    except Exception as error:  # a damaged file can raise anything
        raise damaged(path, error) from None


def _read_old(content: bytes) -> tuple[dict[str, _Tensor], dict[str, Array]]:
    file = io.BytesIO(content)
    if not content.startswith(b"\x80") or unpickle(file, RULES) != MAGIC:
        raise ValueError("it does not begin as torch's files do")
    version, machine = unpickle(file, RULES), unpickle(file, RULES)
    if type(version) is not int or version != VERSION:
        raise InputError("it is of an unknown version of torch's old format")
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise InputError("its numbers are not little-endian")
    tensors = _named(unpickle(file, RULES), len(content))
    keys = unpickle(file, RULES)
    if not isinstance(keys, list) or not all(type(key) is str for key in keys):
        raise InputError("its storages have no keys")
    declared = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    storages: dict[str, Array] = {}
    for key in keys:
        if key not in declared or key in storages:
            raise InputError("its storages are not those of its tensors")
        storage = declared[key]
        count = int.from_bytes(file.read(8), "little", signed=True)
        if count != storage.count:
            raise ValueError(f"a storage says that it has {count} elements, its tensors that it has {storage.count}")
        start = file.tell()
        storages[key] = _elements(content, storage, start)
        file.seek(start + storages[key].nbytes)
    return tensors, storages


def _read_zip(content: bytes) -> tuple[dict[str, _Tensor], dict[str, Array]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise InputError("its parts are compressed, which torch's never are")
        root = next((PurePosixPath(e.filename).parent for e in entries if e.filename.endswith("/data.pkl")), None)
        if root is None:
            raise InputError("it is a zip without a data.pkl")
        names = {entry.filename for entry in entries}
        if f"{root}/byteorder" in names and archive.read(f"{root}/byteorder") != b"little":
            raise InputError("its numbers are not little-endian")
        tensors = _named(unpickle(io.BytesIO(archive.read(f"{root}/data.pkl")), RULES), len(content))
        declared = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
        found = {
            key: _elements(archive.read(f"{root}/data/{key}"), storage, 0)
            for key, storage in declared.items()
            if f"{root}/data/{key}" in names
        }
    return tensors, found


def _elements(content: bytes, storage: _Storage, start: int) -> Array:
    if storage.count * storage.dtype.itemsize > len(content) - start:
        raise EOFError("it ends too early")
    return np.frombuffer(content, storage.dtype, storage.count, start)


def _named(content: object, length: int) -> dict[str, _Tensor]:
    if not isinstance(content, dict):
        raise InputError(f"it holds a {type_name(content)}, not named tensors")
    storages: dict[str, _Storage] = {}
    for name, value in content.items():
        if type(name) is not str or not isinstance(value, _Tensor):
            raise InputError(f"it holds a {type_name(value)} under {name!r:.40}, not a tensor")
        if storages.setdefault(value.storage.key, value.storage) != value.storage:
            raise InputError("it has two storages of one key")
    if sum(tensor.nbytes for tensor in content.values()) > MOST_GROWTH * length:
        raise InputError("it repeats its storages over and over")
    return content


def _array(tensor: _Tensor, storage: Array) -> Array:
    strides = tuple(stride * storage.itemsize for stride in tensor.strides)
    view = np.lib.stride_tricks.as_strided(storage[tensor.offset :], tensor.shape, strides, writeable=False)
    return np.array(view, dtype=storage.dtype.newbyteorder("="), order="C")


def _tensor(storage: object, offset: object, shape: object, strides: object, *_: object) -> _Tensor:
    """Stand in for torch's functions that build a tensor; every element must lie in the storage."""
    if not isinstance(storage, _Storage) or not _is_count(offset) or not _are_counts(shape) or not _are_counts(strides):
        raise InputError("it has a tensor in an unknown form")
    found = _Tensor(storage, offset, shape, strides)  # type: ignore[arg-type]
    if len(found.shape) != len(found.strides) or len(found.shape) > 32:
        raise InputError("it has a tensor of an impossible shape")
    if 0 in found.shape:
        return _Tensor(storage, 0, found.shape, (0,) * len(found.shape))
    last = found.offset + sum((size - 1) * stride for size, stride in zip(found.shape, found.strides, strict=True))
    if last >= storage.count:
        raise InputError(f"it has a tensor that reaches element {last} of a storage of {storage.count}")
    return found


def _parameter(tensor: object, *_: object) -> _Tensor:
    if not isinstance(tensor, _Tensor):
        raise InputError("it has a parameter that is not a tensor")
    return tensor


def _dict(*content: object) -> _StateDict:
    if content and content != ([],):
        raise InputError("it has a dict in an unknown form")
    return _StateDict()


def _refuse_call(*_: object) -> NoReturn:
    raise InputError("it calls something other than a tensor or a container")


ADMITTED = stand_ins(
    (("collections",), "OrderedDict", _dict),
    (("torch._utils",), "_rebuild_tensor", _tensor),
    (("torch._utils",), "_rebuild_tensor_v2", _tensor),
    (("torch._utils",), "_rebuild_parameter", _parameter),
    *((("torch",), name, _refuse_call) for name in STORAGES),
)


def _storage(label: object) -> _Storage:
    """Read the tuple with which a pickle refers to a storage."""
    if type(label) is not tuple or len(label) not in (5, 6) or label[0] != "storage":
        raise InputError("it points to something other than a storage")
    _, kind, key, _, count, *view = label
    name = kind.name.removeprefix("torch.") if isinstance(kind, StandIn) else ""
    if name not in STORAGES or type(key) is not str or not _is_count(count) or view not in ([], [None]):
        raise InputError("it has a storage in an unknown form")
    return _Storage(key, np.dtype(STORAGES[name]), count)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**48


def _are_counts(values: object) -> bool:
    return type(values) is tuple and all(map(_is_count, values))


RULES = Rules(ADMITTED, contents="tensors", keys="tensor", persistent=_storage)
