"""Reader of the ``.plk`` pickles of this field: a dict from class to a list of feature vectors.

A pickle is a program. This reader runs the few steps of it that build arrays of numbers and plain containers, and
refuses everything else by name before it could run. What a pickle calls NumPy's functions are functions of this
module: they take only bytes that fit a shape and a type of numbers. The bytes of long vectors stay in the file until
the array of all features is there to take them, so that memory holds them once.
"""

import math
import os
import pickle
import pickletools
import re
import struct
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import numpy.typing as npt

from p3dc.errors import InputError

STEPS = """
    MARK STOP POP POP_MARK DUP PROTO FRAME NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT
    BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES
    BINBYTES8 BYTEARRAY8 EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM
    SETITEMS EMPTY_SET ADDITEMS GLOBAL STACK_GLOBAL REDUCE BUILD GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE
"""
NUMBERS = {int, float} | {np.dtype(code).type for code in "efdgbhilqBHILQ"}
KEYS = NUMBERS | {str, bytes, bool, type(None), np.bool_}
MOST_GROWTH = 16  # a byte of a file is at most a float64, unless the file repeats itself
SMALL = 2**30
SHORT = 512


class _StandIn:
    """What a pickle gets when it asks for a name: a function of ours, which it cannot change."""

    __slots__ = ("function", "name")

    name: str
    function: Callable[..., Any]

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "function", function)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise InputError(f"it tries to change {self.name}")

    def __setstate__(self, state: object) -> NoReturn:
        raise InputError(f"it tries to change {self.name}")


class _Type:
    """A type of numbers, which needs its byte order yet."""

    __slots__ = ("dtype",)

    def __init__(self, code: object, *_: object) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"[<>|=]?[fiub]\d{1,2}", code):
            raise InputError("it holds something other than numbers")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or state[1] not in ("<", ">", "|", "="):
            raise InputError("it has a type of numbers without a byte order")
        if any(part is not None for part in state[2:5]) or not all(part in (-1, 0, None) for part in state[5:]):
            raise InputError("it holds something other than numbers")
        self.dtype = self.dtype.newbyteorder(state[1])


class _Stretch:
    """A stretch of the file: bytes, or text that stands for bytes."""

    __slots__ = ("encoding", "file", "length", "start")

    def __init__(self, file: BinaryIO, length: int, encoding: str | None) -> None:
        self.file, self.start, self.length, self.encoding = file, file.tell(), length, encoding

    def __bytes__(self) -> bytes:
        self.file.seek(self.start)
        found = self.file.read(self.length)
        return found if self.encoding is None else found.decode(self.encoding).encode("latin1")

    def __len__(self) -> int:
        if self.encoding in (None, "latin1"):
            return self.length
        here = self.file.tell()
        length = len(bytes(self))
        self.file.seek(here)
        return length


class _Array:
    """An array, which may need its shape and its bytes yet."""

    __slots__ = ("dtype", "order", "raw", "shape")

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: Any

    def __init__(self, *_: object) -> None:
        self.raw: bytes | bytearray | _Stretch | None = None

    def __setstate__(self, state: object) -> None:
        if self.raw is not None or not isinstance(state, tuple) or len(state) != 5:
            raise InputError("it has an array in an unknown form")
        _, shape, kind, fortran, raw = state
        self.fill(raw, kind, shape, "F" if fortran else "C")

    def fill(self, raw: object, kind: object, shape: object, order: object) -> "_Array":
        if isinstance(raw, str):  # Python 2 had no other bytes
            raw = raw.encode("latin1")
        if not isinstance(kind, _Type) or not isinstance(raw, bytes | bytearray | _Stretch):
            raise InputError("it has an array of something other than numbers")
        if not isinstance(shape, tuple) or len(shape) > 32 or not all(type(n) is int and 0 <= n < 2**63 for n in shape):
            raise InputError("it has an array of an impossible shape")
        if order not in ("C", "F"):
            raise InputError("it has an array in an unknown order")
        if math.prod(shape) * kind.dtype.itemsize != len(raw):
            raise InputError(f"it has an array of shape {shape} and type {kind.dtype} in {len(raw)} bytes")
        self.raw, self.dtype, self.shape, self.order = raw, kind.dtype, shape, order
        return self

    def read(self) -> npt.NDArray[Any]:
        raw = bytes(self.raw) if isinstance(self.raw, _Stretch) else self.raw or b""
        return np.frombuffer(raw, self.dtype).reshape(self.shape, order=self.order)


def _scalar(kind: object, raw: object) -> Any:
    return _Array().fill(raw, kind, (), "C").read()[()]


def _latin1(text: str | _Stretch, encoding: str = "latin1") -> bytes | _Stretch:
    """Stand in for ``_codecs.encode``, by which old pickles carry bytes; it looks up no other codec."""
    if encoding not in ("latin1", "latin-1", "iso-8859-1"):
        raise InputError(f"it has bytes in {encoding}")
    return text if isinstance(text, _Stretch) else text.encode("latin1")


def _bytearray(content: object = b"", *encoding: str) -> bytearray | _Stretch:
    if isinstance(content, str):
        content = _latin1(content, *encoding)
    if isinstance(content, _Stretch):
        return content
    if not isinstance(content, bytes):  # of a number it would make that many bytes
        raise InputError("it has a bytearray of something other than bytes")
    return bytearray(content)


def _items(content: object) -> list[Any]:
    if not isinstance(content, list | tuple):
        raise InputError("it has a container of something other than a list")
    return list(content)


def _pairs(content: object) -> list[tuple[Any, Any]]:
    pairs = [(key, value) for key, value in _items(content)]
    _check_keys(key for key, _ in pairs)
    return pairs


def _set(content: object = ()) -> set[Any]:
    items = _items(content)
    _check_keys(items)
    return set(items)


def _check_keys(keys: Iterable[object]) -> None:
    """Refuse keys that are not plain; the hash of tuples nested deeply enough ends the process."""
    for key in keys:
        if type(key) not in KEYS:
            raise InputError(f"it has a {type(key).__name__} where a class should be named")


def _refuse_call(*_: object) -> NoReturn:
    raise InputError("it builds an array in an unknown way")


ADMITTED = {
    (module, name): _StandIn(f"{module}.{name}", function)
    for modules, name, function in (
        (("numpy",), "ndarray", _refuse_call),
        (("numpy",), "dtype", _Type),
        (("numpy._core.multiarray", "numpy.core.multiarray"), "_reconstruct", _Array),
        (("numpy._core.multiarray", "numpy.core.multiarray"), "scalar", _scalar),
        (
            ("numpy._core.numeric", "numpy.core.numeric"),
            "_frombuffer",
            lambda raw, kind, shape, order, axes=None: _Array().fill(raw, kind, shape, order),
        ),
        (("_codecs",), "encode", _latin1),
        (("builtins", "__builtin__"), "bytearray", _bytearray),
        (("builtins", "__builtin__"), "list", lambda content=(): _items(content)),
        (("builtins", "__builtin__"), "tuple", lambda content=(): tuple(_items(content))),
        (("builtins", "__builtin__"), "set", _set),
        (("builtins", "__builtin__"), "dict", lambda content=(): dict(_pairs(content))),
        (("collections",), "OrderedDict", lambda content=(): OrderedDict(_pairs(content))),
        # The default is for keys that are not there, and no such key is asked for.
        (("collections",), "defaultdict", lambda default=None: defaultdict()),
    )
    for module in modules
}


class _ArrayUnpickler(pickle._Unpickler):  # the one in C crashes on tuples nested deeply and on large memo numbers
    stack: list[Any]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]
    read: Callable[[int], bytes]
    readline: Callable[[], bytes]

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, encoding="latin1")
        self.file = file
        self.end = os.fstat(file.fileno()).st_size

    def find_class(self, module: str, name: str) -> Any:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise InputError(f"it asks for {module}.{name}, which is neither an array nor a container") from None

    def load_global(self) -> None:
        module, name = self.readline(), self.readline()
        if not name.endswith(b"\n"):
            raise EOFError("it ends too early")
        self.append(self.find_class(module[:-1].decode(), name[:-1].decode()))

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        function = self.stack.pop()
        if type(function) is not _StandIn or type(arguments) is not tuple:
            raise InputError(f"it calls a {type(function).__name__}")
        self.append(function.function(*arguments))

    def load_build(self) -> None:
        state = self.stack.pop()
        if type(self.stack[-1]) not in (_Type, _Array, _StandIn):
            raise InputError(f"it tries to change a {type(self.stack[-1]).__name__}")
        self.stack[-1].__setstate__(state)

    def load_frame(self) -> None:
        self.read(8)  # frames are for reading ahead

    def load_binbytes(self) -> None:
        self._take("<I", None)

    def load_binbytes8(self) -> None:
        self._take("<Q", None)

    def load_bytearray8(self) -> None:
        self._take("<Q", None)

    def load_binstring(self) -> None:
        self._take("<I", "latin1")

    def load_binunicode(self) -> None:
        self._take("<I", "utf-8")

    def load_binunicode8(self) -> None:
        self._take("<Q", "utf-8")

    def _take(self, form: str, encoding: str | None) -> None:
        (length,) = struct.unpack(form, self.read(struct.calcsize(form)))
        if length > self.end - self.file.tell():
            raise EOFError("it ends too early")
        if length > SHORT:
            self.append(_Stretch(self.file, length, encoding))
            self.file.seek(length, os.SEEK_CUR)
        else:
            found = self.read(length)
            self.append(found if encoding is None else found.decode(encoding))

    def load_append(self) -> None:
        value = self.stack.pop()
        self._last(list).append(value)

    def load_appends(self) -> None:
        values = self.pop_mark()
        self._last(list).extend(values)

    def load_setitem(self) -> None:
        value = self.stack.pop()
        self._fill([self.stack.pop(), value])

    def load_setitems(self) -> None:
        self._fill(self.pop_mark())

    def load_dict(self) -> None:
        items = self.pop_mark()
        self.append({})
        self._fill(items)

    def load_additems(self) -> None:
        items = self.pop_mark()
        _check_keys(items)
        self._last(set).update(items)

    def _fill(self, items: list[Any]) -> None:
        _check_keys(items[::2])
        self._last(dict).update(zip(items[::2], items[1::2], strict=True))

    def _last(self, kind: type) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise InputError(f"it fills a {type(self.stack[-1]).__name__} like a {kind.__name__}")
        return self.stack[-1]


def _refuse_step(name: str) -> Callable[[Any], NoReturn]:
    def refuse(_: Any) -> NoReturn:
        raise InputError(f"it takes the step {name}, which arrays and containers do not need")

    return refuse


def _refuse_byte(_: Any) -> NoReturn:
    raise pickle.UnpicklingError("a byte in it is no step of a pickle")


def _dispatch() -> dict[int, Any]:
    own, admitted = vars(_ArrayUnpickler), STEPS.split()
    steps: dict[int, Any] = dict.fromkeys(range(256), _refuse_byte)
    for step in pickletools.opcodes:
        code = ord(step.code)
        take = own.get(f"load_{step.name.lower()}", pickle._Unpickler.dispatch[code])
        steps[code] = take if step.name in admitted else _refuse_step(step.name)
    return steps


_ArrayUnpickler.dispatch = _dispatch()


def read_plk(path: str | os.PathLike[str]) -> tuple[npt.NDArray[Any], dict[str, int]]:
    """Read features, (n, D), and how many rows of them each class has, in the order of the file."""
    try:
        with Path(path).open("rb") as file:
            classes = _classes(path, _content(path, file))
            counts = {name: len(vectors) for name, vectors in classes.items()}
            return _joined(path, classes), counts
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}). Fetch or write it again.") from None


def _content(path: str | os.PathLike[str], file: BinaryIO) -> Any:
    try:
        return _ArrayUnpickler(file).load()
    except InputError as error:
        raise InputError(f"{path} was refused and nothing in it was run: {error}. Save the features as .npz.") from None
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        why = str(error) or type(error).__name__
        raise InputError(f"{path} is damaged or is not a pickle ({why}). Fetch or write it again.") from None


def _classes(path: str | os.PathLike[str], content: Any) -> dict[str, list["_Array | npt.NDArray[Any]"]]:
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path} holds a {type(content).__name__}, not a dict from class to feature vectors.")
    classes = {}
    for key in list(content):
        name = _name(path, key)
        if name in classes:
            raise InputError(f"{path} has class {name} twice. Extract it again.")
        classes[name] = _vectors(path, name, content.pop(key))
    return classes


def _name(path: str | os.PathLike[str], key: object) -> str:
    if type(key) not in NUMBERS | {str} or key != key:
        raise InputError(f"{path} has a class named by {key!r:.40}. Name classes by text or by whole numbers.")
    return str(key)


def _vectors(path: str | os.PathLike[str], name: str, vectors: Any) -> list[_Array | npt.NDArray[Any]]:
    if isinstance(vectors, _Array):
        if vectors.raw is None or len(vectors.shape) != 2 or vectors.dtype.kind not in "fiu":
            raise InputError(f"{path} has {_told(vectors)} for class {name}. It must be a list of vectors of numbers.")
        return list(vectors.read())
    if not isinstance(vectors, list | tuple):
        raise InputError(f"{path} has {_told(vectors)} for class {name}. It must be a list of vectors.")
    return [_vector(path, name, vector) for vector in vectors]


def _vector(path: str | os.PathLike[str], name: str, vector: Any) -> _Array | npt.NDArray[Any]:
    if isinstance(vector, list | tuple) and set(map(type, vector)) <= NUMBERS:
        vector = np.asarray(vector)
    good = isinstance(vector, np.ndarray) or (isinstance(vector, _Array) and vector.raw is not None)
    if not good or len(vector.shape) != 1 or vector.dtype.kind not in "fiu":
        raise InputError(f"{path} has {_told(vector)} in class {name}. It must be a list of vectors of numbers.")
    found: _Array | npt.NDArray[Any] = vector
    return found


def _told(value: Any) -> str:
    if isinstance(value, np.ndarray) or (isinstance(value, _Array) and value.raw is not None):
        return f"an array of shape {value.shape} and type {value.dtype}"
    return f"a {type(value).__name__.strip('_')}"


def _joined(path: str | os.PathLike[str], classes: dict[str, list[_Array | npt.NDArray[Any]]]) -> npt.NDArray[Any]:
    """Empty the classes into one array."""
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
    if size > max(SMALL, MOST_GROWTH * Path(path).stat().st_size):
        raise InputError(f"{path} repeats its vectors until they take {size:,} bytes. Save the features as .npz.")
    features = np.empty(shape, dtype)
    row = 0
    for name in list(classes):
        for vector in classes.pop(name):
            features[row] = vector.read() if isinstance(vector, _Array) else vector
            row += 1
    return features
