"""Reader of the ``.plk`` pickles of this field: a dict from class to a list of feature vectors.

The pickle gets functions of this module instead of NumPy's, which take only bytes that fit a shape and a type of
numbers. The bytes of long vectors stay in the file until the array of all features exists, so that memory holds them
once.
"""

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import numpy.typing as npt

from p3dc.errors import InputError
from p3dc.io.atomic import damaged
from p3dc.io.restricted_pickle import (
    MOST_GROWTH,
    NUMBERS,
    SMALL,
    Buildable,
    LongString,
    Rules,
    check_keys,
    stand_ins,
    type_name,
    unpickle,
)

VIEW_BYTES = 128
"""What a row of an array takes besides its numbers, at most."""


class _Type(Buildable):
    """A type of numbers, whose byte order may follow in its state."""

    __slots__ = ("dtype",)

    def __init__(self, code: object, *_: object) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"[<>|=]?[fiub]\d{1,2}", code):
            raise InputError("it holds something other than numbers")
        self.dtype = np.dtype(code)

    def set_state(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or state[1] not in ("<", ">", "|", "="):
            raise InputError("it has a type of numbers without a byte order")
        if any(part is not None for part in state[2:5]) or not all(part in (-1, 0, None) for part in state[5:]):
            raise InputError("it holds something other than numbers")
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array(Buildable):
    """An array, whose shape and bytes may follow in its state."""

    __slots__ = ("dtype", "order", "raw", "shape")

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: Any

    def __init__(self, *_: object) -> None:
        self.raw: bytes | bytearray | LongString | None = None

    def set_state(self, state: object) -> None:
        if self.raw is not None or not isinstance(state, tuple) or len(state) != 5:
            raise InputError("it has an array in an unknown form")
        _, shape, kind, fortran, raw = state
        self.fill(raw, kind, shape, "F" if fortran else "C")

    def fill(self, raw: object, kind: object, shape: object, order: object) -> "_Array":
        if isinstance(raw, str):  # Python 2 had no other bytes
            raw = raw.encode("latin1")
        if not isinstance(kind, _Type) or not isinstance(raw, bytes | bytearray | LongString):
            raise InputError("it has an array of something other than numbers")
        if not isinstance(shape, tuple) or len(shape) > 32 or not all(type(n) is int and 0 <= n < 2**48 for n in shape):
            raise InputError("it has an array of an impossible shape")
        if order not in ("C", "F"):
            raise InputError("it has an array in an unknown order")
        if math.prod(shape) * kind.dtype.itemsize != len(raw):
            raise InputError(f"it has an array of shape {shape} and type {kind.dtype} in {len(raw)} bytes")
        self.raw, self.dtype, self.shape, self.order = raw, kind.dtype, shape, order
        return self

    def read(self) -> npt.NDArray[Any]:
        raw = bytes(self.raw) if isinstance(self.raw, LongString) else self.raw or b""
        return np.frombuffer(raw, self.dtype).reshape(self.shape, order=self.order)


def _scalar(kind: object, raw: object) -> Any:
    return _Array().fill(raw, kind, (), "C").read()[()]


def _latin1(text: str | LongString, encoding: str = "latin1") -> bytes | LongString:
    """Stand in for ``_codecs.encode``, with which old pickles store bytes; other codecs are refused."""
    if encoding not in ("latin1", "latin-1", "iso-8859-1"):
        raise InputError(f"it has bytes in {encoding}")
    return text if isinstance(text, LongString) else text.encode("latin1")


def _bytearray(content: object = b"", *encoding: str) -> bytearray | LongString:
    if isinstance(content, str):
        content = _latin1(content, *encoding)
    if isinstance(content, LongString):
        return content
    if not isinstance(content, bytes):  # a number would make that many bytes
        raise InputError("it has a bytearray of something other than bytes")
    return bytearray(content)


def _items(content: object) -> list[Any]:
    if not isinstance(content, list | tuple):
        raise InputError("it has a container of something other than a list")
    return list(content)


def _dict(content: object = ()) -> dict[Any, Any]:
    pairs = _items(content)
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise InputError("it has a dict of something other than keys and values")
    check_keys((key for key, _ in pairs), "class")
    return dict(pairs)


def _set(content: object = ()) -> set[Any]:
    items = _items(content)
    check_keys(items, "class")
    return set(items)


def _refuse_call(*_: object) -> NoReturn:
    raise InputError("it builds an array in an unknown way")


BUILTINS = ("builtins", "__builtin__")
ADMITTED = stand_ins(
    (("numpy",), "ndarray", _refuse_call),
    (("numpy",), "dtype", _Type),
    (("numpy._core.multiarray", "numpy.core.multiarray"), "_reconstruct", _Array),
    (("numpy._core.multiarray", "numpy.core.multiarray"), "scalar", _scalar),
    (("numpy._core.numeric", "numpy.core.numeric"), "_frombuffer", lambda *state: _Array().fill(*state[:4])),
    (("_codecs",), "encode", _latin1),
    (BUILTINS, "bytearray", _bytearray),
    (BUILTINS, "list", lambda content=(): _items(content)),
    (BUILTINS, "tuple", lambda content=(): tuple(_items(content))),
    (BUILTINS, "set", _set),
    (BUILTINS, "dict", _dict),
    (("collections",), "OrderedDict", _dict),
    (("collections",), "defaultdict", lambda default=None: {}),
)
RULES = Rules(ADMITTED, contents="arrays", keys="class", long_in_file=True)

Vector = _Array | npt.NDArray[Any]


def read_plk(path: str | os.PathLike[str]) -> tuple[npt.NDArray[Any], dict[str, int]]:
    """Read features, (n, D), and the number of rows of each class, in the order of the file."""
    try:
        with Path(path).open("rb") as file:
            classes = _classes(path, _content(path, file))
            counts = {name: len(vectors) for name, vectors in classes.items()}
            return _joined(path, classes), counts
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}). Fetch or write it again.") from None


def _content(path: str | os.PathLike[str], file: BinaryIO) -> Any:
    try:
        return unpickle(file, RULES)
    except InputError as error:
        raise InputError(f"{path} was refused and nothing in it was run: {error}. Save the features as .npz.") from None
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise damaged(path, error, "is not a pickle") from None


def _classes(path: str | os.PathLike[str], content: Any) -> dict[str, list[Vector]]:
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path} holds a {type_name(content)}, not a dict from class to feature vectors.")
    classes: dict[str, list[Vector]] = {}
    size, most = 0, _most_bytes(path)
    for key in list(content):
        name = _name(path, key)
        if name in classes:
            raise InputError(f"{path} has class {name} twice. Extract it again.")
        classes[name] = []
        for vector in _vectors(path, name, content.pop(key)):
            size += 8 if isinstance(vector, _Array) else VIEW_BYTES + vector.nbytes
            if size > most:
                raise InputError(f"{path} repeats its vectors over and over. Save the features as .npz.")
            classes[name].append(vector)
    return classes


def _most_bytes(path: str | os.PathLike[str]) -> int:
    return max(SMALL, MOST_GROWTH * Path(path).stat().st_size)


def _name(path: str | os.PathLike[str], key: object) -> str:
    if type(key) not in NUMBERS | {str} or key != key:
        raise InputError(f"{path} has a class named by {key!r:.40}. Name classes by text or by whole numbers.")
    return str(key)


def _vectors(path: str | os.PathLike[str], name: str, vectors: Any) -> Iterator[Vector]:
    if _is_array(vectors, 2):
        yield from vectors.read()
    elif isinstance(vectors, list | tuple):
        for vector in vectors:
            plain = isinstance(vector, list | tuple) and set(map(type, vector)) <= NUMBERS
            found = np.asarray(vector) if plain else vector
            if not _is_array(found, 1):
                what = f"{_described(found)} in class {name}"
                raise InputError(f"{path} has {what}. It must be a list of vectors of numbers.")
            yield found
    else:
        what = f"{_described(vectors)} for class {name}"
        raise InputError(f"{path} has {what}. It must be a list of vectors of numbers.")


def _is_array(value: Any, n_axes: int | None = None) -> bool:
    """Return whether a value is a complete array, of numbers along so many axes if a number of axes is asked for."""
    if not isinstance(value, np.ndarray) and (not isinstance(value, _Array) or value.raw is None):
        return False
    return n_axes is None or (len(value.shape) == n_axes and value.dtype.kind in "fiu")


def _described(value: Any) -> str:
    return f"an array of shape {value.shape} and type {value.dtype}" if _is_array(value) else f"a {type_name(value)}"


def _joined(path: str | os.PathLike[str], classes: dict[str, list[Vector]]) -> npt.NDArray[Any]:
    """Copy all vectors into one array, and drop each class as soon as it is copied."""
    widths: dict[int, str] = {}
    dtypes = set()
    for name, vectors in classes.items():
        if not vectors:
            raise InputError(f"{path} has no vectors for class {name}. Remove the class or extract it again.")
        for vector in vectors:
            widths.setdefault(vector.shape[0], name)
            dtypes.add(vector.dtype)
    if len(widths) > 1:
        (one, one_name), (two, two_name), *_ = widths.items()
        raise InputError(
            f"{path} has vectors of different lengths: {one} in class {one_name} and {two} in class {two_name}. "
            "Extract all of them with the same backbone."
        )
    shape = (sum(map(len, classes.values())), *widths)
    dtype = np.result_type(*dtypes).newbyteorder("=")
    size = math.prod(shape) * dtype.itemsize
    if size > _most_bytes(path):
        raise InputError(f"{path} repeats its vectors until they take {size:,} bytes. Save the features as .npz.")
    features = np.empty(shape, dtype)
    row = 0
    for name in list(classes):
        for vector in classes.pop(name):
            features[row] = vector.read() if isinstance(vector, _Array) else vector
            row += 1
    return features
