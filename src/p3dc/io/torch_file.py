"""Reader of torch's files of named tensors, without torch and without running anything.

Such a file holds pickles, and a pickle is a program. The few steps that build tensors and plain containers are taken
here one by one; everything else is refused by name. Two forms are read. The old one is five pickles (a magic number, a
version, facts about the machine, the content, the keys of the storages) and then the storages, each behind its count of
elements. The new one is a zip of ``data.pkl`` and one file for each storage.
"""

import io
import math
import os
import pickletools
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc.errors import InputError
from p3dc.io.atomic import damaged

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001
MOST_GROWTH = 16
"""How many times the bytes of a file its tensors may take; more means that it repeats its storages."""

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
TEXT = ["STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"]
NUMBERS = ["INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"]
VALUES = {*TEXT, *NUMBERS}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
MADE = {"EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict}
SHORT_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
PUTS = ["PUT", "BINPUT", "LONG_BINPUT"]
GETS = ["GET", "BINGET", "LONG_BINGET"]
IDLE = ["PROTO", "FRAME"]

Array = npt.NDArray[Any]


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


@dataclass(frozen=True)
class _Name:
    """What a pickle gets when it asks for a name of a module."""

    name: str


def read_tensors(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read a file of named tensors, such as a network's state dict.

    Parameters
    ----------
    path : path
        A file written by ``torch.save``, in the old form or in the new one.

    Returns
    -------
    dict from str to array
        Contiguous arrays in the order of the file.

    Raises
    ------
    InputError
        If the file is damaged, or holds anything but named tensors; nothing in it is run.
    """
    try:
        content = Path(path).read_bytes()
        read = _read_zip if content.startswith(b"PK") else _read_old
        tensors, storages = read(content)
        return {name: _array(tensor, storages[tensor.storage.key]) for name, tensor in tensors.items()}
    except InputError as error:
        raise InputError(f"{path} was refused and nothing in it was run: {error}. Save a state dict alone.") from None
    except Exception as error:  # a damaged file can raise anything
        raise damaged(path, error) from None


def _read_old(content: bytes) -> tuple[dict[str, _Tensor], dict[str, Array]]:
    file = io.BytesIO(content)
    if not content.startswith(b"\x80") or _unpickle(file) != MAGIC:
        raise ValueError("it does not begin as torch's files do")
    version, machine = _unpickle(file), _unpickle(file)
    if type(version) is not int or version != VERSION:
        raise InputError("it is of an unknown version of torch's old form")
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise InputError("its numbers are not little-endian")
    tensors = _named(_unpickle(file), len(content))
    keys = _unpickle(file)
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
    return tensors, _complete(declared, storages)


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
        tensors = _named(_unpickle(io.BytesIO(archive.read(f"{root}/data.pkl"))), len(content))
        declared = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
        found = {
            key: _elements(archive.read(f"{root}/data/{key}"), storage, 0)
            for key, storage in declared.items()
            if f"{root}/data/{key}" in names
        }
    return tensors, _complete(declared, found)


def _elements(content: bytes, storage: _Storage, start: int) -> Array:
    if storage.count * storage.dtype.itemsize > len(content) - start:
        raise EOFError("it ends too early")
    return np.frombuffer(content, storage.dtype, storage.count, start)


def _complete(declared: dict[str, _Storage], found: dict[str, Array]) -> dict[str, Array]:
    if len(found) < len(declared):
        raise InputError("it lacks storages of its tensors")
    return found


def _named(content: object, length: int) -> dict[str, _Tensor]:
    if not isinstance(content, dict):
        raise InputError(f"it holds a {type(content).__name__.strip('_')}, not named tensors")
    storages: dict[str, _Storage] = {}
    for name, value in content.items():
        if type(name) is not str or not isinstance(value, _Tensor):
            raise InputError(f"it holds a {type(value).__name__.strip('_')} under {name!r:.40}, not a tensor")
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
    """Stand in for torch's function of the same task; every element must lie in the storage."""
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
        raise InputError("it has a parameter that is no tensor")
    return tensor


def _dict(*content: object) -> dict[str, Any]:
    if content and content != ([],):
        raise InputError("it has a dict in an unknown form")
    return {}


CALLS: dict[str, Callable[..., Any]] = {
    "collections OrderedDict": _dict,
    "torch._utils _rebuild_tensor": _tensor,
    "torch._utils _rebuild_tensor_v2": _tensor,
    "torch._utils _rebuild_parameter": _parameter,
}
NAMES = {*CALLS, *(f"torch {name}" for name in STORAGES)}


def _storage(label: object) -> _Storage:
    """Read the tuple by which a pickle points to a storage."""
    if type(label) is not tuple or len(label) not in (5, 6) or label[0] != "storage":
        raise InputError("it points to something other than a storage")
    _, kind, key, _, count, *view = label
    name = kind.name.removeprefix("torch ") if isinstance(kind, _Name) else ""
    if name not in STORAGES or type(key) is not str or not _is_count(count) or view not in ([], [None]):
        raise InputError("it has a storage in an unknown form")
    return _Storage(key, np.dtype(STORAGES[name]), count)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**48


def _are_counts(values: object) -> bool:
    return type(values) is tuple and all(map(_is_count, values))


def _unpickle(file: io.BytesIO) -> Any:
    """Take the steps of one pickle. Nothing is looked up or called but what this module has."""
    stack: list[Any] = []
    below: list[list[Any]] = []  # what lies under each mark
    memo: dict[int, Any] = {}
    argument: Any
    for step, argument, _ in pickletools.genops(file):
        name = step.name
        if name in VALUES:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in MADE:
            stack.append(MADE[name]())
        elif name in SHORT_TUPLES:
            stack[-SHORT_TUPLES[name] :] = [tuple(stack[-SHORT_TUPLES[name] :])]
        elif name in PUTS:
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in GETS:
            stack.append(memo[argument])
        elif name == "MARK":
            below.append(stack)
            stack = []
        elif name in ("TUPLE", "LIST", "DICT", "APPENDS", "SETITEMS"):
            items, stack = stack, below.pop()
            _gather(name, items, stack)
        elif name == "APPEND":
            _gather("APPENDS", [stack.pop()], stack)
        elif name == "SETITEM":
            value = stack.pop()
            _gather("SETITEMS", [stack.pop(), value], stack)
        elif name == "GLOBAL":
            stack.append(_admitted(argument))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            if not (isinstance(attribute, str) and isinstance(module, str)):
                raise InputError("it names something by what is no text")
            stack.append(_admitted(f"{module} {attribute}"))
        elif name == "REDUCE":
            arguments = stack.pop()
            stack.append(_call(stack.pop(), arguments))
        elif name == "BUILD":
            stack.pop()  # facts about a state dict, none of them a tensor
            if type(stack[-1]) is not dict:
                raise InputError(f"it tries to change a {type(stack[-1]).__name__.strip('_')}")
        elif name == "BINPERSID":
            stack.append(_storage(stack.pop()))
        elif name == "STOP":
            return stack.pop()
        elif name not in IDLE:
            raise InputError(f"it takes the step {name}, which tensors and containers do not need")
    raise EOFError("it ends too early")


def _gather(name: str, items: list[Any], stack: list[Any]) -> None:
    """Put what lies above a mark into a container: a new one, or the last below the mark."""
    if name == "TUPLE":
        stack.append(tuple(items))
        return
    if name in ("LIST", "DICT"):
        stack.append([] if name == "LIST" else {})
    last = stack[-1]
    if name in ("LIST", "APPENDS") and type(last) is list:
        last.extend(items)
    elif name in ("DICT", "SETITEMS") and type(last) is dict:
        if not all(type(key) in (str, int) for key in items[::2]):  # the hash of a deep tuple ends the process
            raise InputError("it has a key that is neither text nor a number")
        last.update(zip(items[::2], items[1::2], strict=True))
    else:
        raise InputError(f"it fills a {type(last).__name__.strip('_')} by the step {name}")


def _admitted(name: str) -> _Name:
    if name not in NAMES:
        raise InputError(f"it asks for {name.replace(' ', '.')}, which is neither a tensor nor a container")
    return _Name(name)


def _call(function: object, arguments: object) -> Any:
    if not isinstance(function, _Name) or function.name not in CALLS or type(arguments) is not tuple:
        raise InputError("it calls something other than a tensor or a container")
    return CALLS[function.name](*arguments)
