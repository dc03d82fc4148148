"""Interpreter of pickles that runs nothing from them.

A pickle is a program. This interpreter executes the opcodes that build plain values and containers, and calls only
stand-ins: functions of this package that a reader admits under the names that its pickles use. It refuses everything
else by name before it could run.
"""

import os
import pickle
import pickletools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, NoReturn

import numpy as np

from p3dc.errors import InputError

OPCODES = """
    MARK STOP POP POP_MARK DUP PROTO FRAME NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT
    BINFLOAT STRING SHORT_BINSTRING UNICODE SHORT_BINUNICODE SHORT_BINBYTES EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
    EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS EMPTY_SET ADDITEMS GLOBAL STACK_GLOBAL REDUCE BUILD
    GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE BINPERSID
"""
STRINGS = {
    "BINBYTES": (4, None),
    "BINBYTES8": (8, None),
    "BYTEARRAY8": (8, None),
    "BINSTRING": (4, "latin1"),
    "BINUNICODE": (4, "utf-8"),
    "BINUNICODE8": (8, "utf-8"),
}
"""The opcodes of strings that may be long, with the size of their length in bytes and their encoding."""
NUMBERS = {int, float} | {np.dtype(code).type for code in "efdgbhilqBHILQ"}
KEYS = NUMBERS | {str, bytes, bool, type(None), np.bool_}
MOST_GROWTH = 16
"""How many times the bytes of a file its content may take; more means that it repeats itself."""
SMALL = 2**25
"""Bytes that a file may take in any case."""
MADE = dict.fromkeys(("EMPTY_LIST", "EMPTY_DICT", "LIST", "DICT"), 64) | {"EMPTY_SET": 216}
MADE |= dict.fromkeys(("MEMOIZE", "PUT", "BINPUT"), 96)
"""Bytes that opcodes of one or two bytes make, which a file may consist of."""
COPIED: dict[type, int] = {list: 64, tuple: 64, str: 4, bytes: 1, bytearray: 1}
"""What stand-ins copy when they get it as their first argument, and the bytes that each entry may take in the copy."""
LARGEST = 2**127
"""Whole numbers are smaller; the largest that a format has is the magic number of torch's files, of 77 bits."""
HASHED = 2**61 - 1
"""Whole numbers below have hashes of their own; larger ones can be chosen to collide, and are no keys."""
LONG = 512
"""Strings of more bytes may stay in the file."""


class Buildable:
    """An object to which a pickle may pass a state with the opcode BUILD."""

    __slots__ = ()

    def set_state(self, state: object) -> None:
        """Check the state and take what is needed of it."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class StandIn(Buildable):
    """A function that a pickle gets instead of the one that it names; the pickle cannot change it."""

    name: str
    function: Callable[..., Any]

    def set_state(self, state: object) -> NoReturn:
        """Refuse any state."""
        raise InputError(f"it tries to change {self.name}")


@dataclass(frozen=True)
class Rules:
    """What the pickles of one file format may do."""

    admitted: dict[tuple[str, str], StandIn]  # what a pickle may ask for, by module and name
    contents: str  # what a pickle should hold, for error sentences: "arrays"
    keys: str  # what its keys should name, for error sentences: "class"
    persistent: Callable[[object], object] | None = None  # turns a persistent id into an object; None refuses all
    long_in_file: bool = False  # whether long strings stay in the file, as LongString


def stand_ins(*entries: tuple[Iterable[str], str, Callable[..., Any]]) -> dict[tuple[str, str], StandIn]:
    """Make stand-ins for names in modules; an entry is the modules, the name and the function."""
    return {(module, name): StandIn(f"{module}.{name}", f) for modules, name, f in entries for module in modules}


class LongString:
    """Bytes that stay in the file, or text there that stands for bytes."""

    __slots__ = ("decoded_length", "encoding", "file", "length", "start")

    def __init__(self, file: BinaryIO, length: int, encoding: str | None) -> None:
        self.file, self.start, self.length, self.encoding = file, file.tell(), length, encoding
        self.decoded_length = length if encoding in (None, "latin1") else None

    def __bytes__(self) -> bytes:
        self.file.seek(self.start)
        found = self.file.read(self.length)
        return found if self.encoding is None else found.decode(self.encoding).encode("latin1")

    def __len__(self) -> int:
        if self.decoded_length is None:
            here = self.file.tell()
            self.decoded_length = len(bytes(self))
            self.file.seek(here)
        return self.decoded_length


def check_keys(keys: Iterable[object], what: str) -> None:
    """Refuse keys that are not plain: hashing a tuple that is nested deeply enough ends the process."""
    for key in keys:
        if type(key) not in KEYS:
            raise InputError(f"it has a {type_name(key)} where a {what} should be named")
        if type(key) is int and not -HASHED < key < HASHED:
            raise InputError(f"it has a number of {key.bit_length()} bits where a {what} should be named")


def type_name(value: object) -> str:
    """Return what to call the type of a value in a sentence."""
    return type(value).__name__.strip("_")


def unpickle(file: BinaryIO, rules: Rules) -> Any:
    """Read the pickle at the current position of a file, and leave the file where the pickle ends.

    What the rules do not allow raises an InputError. A damaged pickle can raise any other exception.
    """
    return _RestrictedUnpickler(file, rules).load()


class _RestrictedUnpickler(pickle._Unpickler):  # the one in C crashes on deeply nested tuples and large memo numbers
    stack: list[Any]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]
    read: Callable[[int], bytes]
    readline: Callable[[], bytes]

    def __init__(self, file: BinaryIO, rules: Rules) -> None:
        super().__init__(file, encoding="latin1")
        self.file, self.rules, self.made = file, rules, 0
        here = file.tell()
        self.end = file.seek(0, os.SEEK_END)
        file.seek(here)

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.rules.admitted[module, name]
        except KeyError:
            contents = self.rules.contents
            raise InputError(f"it asks for {module}.{name}, which {contents} and containers do not need") from None

    def _refuse(self, opcode: str) -> NoReturn:
        raise InputError(f"it takes the step {opcode}, which {self.rules.contents} and containers do not need")

    def load_global(self) -> None:
        module, name = self.readline(), self.readline()
        if not name.endswith(b"\n"):
            raise EOFError("it ends too early")
        self.append(self.find_class(module[:-1].decode(), name[:-1].decode()))

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        function = self.stack.pop()
        if type(function) is not StandIn or type(arguments) is not tuple:
            raise InputError(f"it calls a {type_name(function)}")
        first: Any = arguments[0] if arguments else None
        self._make(64 + (COPIED[type(first)] * len(first) if type(first) in COPIED else 0))
        self.append(function.function(*arguments))

    def _make(self, n_bytes: int) -> None:
        """Count what the content takes beyond the strings and numbers that the file spells out."""
        self.made += n_bytes
        if self.made > max(SMALL, MOST_GROWTH * self.end):
            raise InputError("it copies its content over and over")

    def load_build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if not isinstance(target, Buildable):
            raise InputError(f"it tries to change a {type_name(target)}")
        if type(state) is tuple:  # text is copied where it stands for bytes
            self._make(sum(len(part) for part in state if type(part) is str))
        target.set_state(state)

    def _load_number(self, load: Callable[[Any], None]) -> None:
        load(self)
        if not -LARGEST < self.stack[-1] < LARGEST:
            raise InputError(f"it has a number of {self.stack[-1].bit_length()} bits")

    def _load_counted(self, load: Callable[[Any], None], n_bytes: int) -> None:
        self._make(n_bytes)
        load(self)

    def load_binpersid(self) -> None:
        if self.rules.persistent is None:
            self._refuse("BINPERSID")
        self.append(self.rules.persistent(self.stack.pop()))

    def load_frame(self) -> None:
        self.read(8)  # frames are for reading ahead

    def _load_string(self, size: int, encoding: str | None) -> None:
        length = int.from_bytes(self.read(size), "little")
        if length > self.end - self.file.tell():
            raise EOFError("it ends too early")
        if self.rules.long_in_file and length > LONG:
            self.append(LongString(self.file, length, encoding))
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
        check_keys(items, self.rules.keys)
        self._last(set).update(items)

    def _fill(self, items: list[Any]) -> None:
        check_keys(items[::2], self.rules.keys)
        self._last(dict).update(zip(items[::2], items[1::2], strict=True))

    def _last(self, kind: type) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise InputError(f"it fills a {type_name(self.stack[-1])} like a {kind.__name__}")
        return self.stack[-1]


def _refuse_byte(_: _RestrictedUnpickler) -> NoReturn:
    raise pickle.UnpicklingError("it has a byte that is not an opcode")


def _dispatch() -> dict[int, Any]:
    own, admitted = vars(_RestrictedUnpickler), OPCODES.split()
    table: dict[int, Any] = dict.fromkeys(range(256), _refuse_byte)
    for opcode in pickletools.opcodes:
        code = ord(opcode.code)
        if opcode.name in STRINGS:
            size, encoding = STRINGS[opcode.name]
            table[code] = partial(_RestrictedUnpickler._load_string, size=size, encoding=encoding)
        elif opcode.name in admitted:
            load = own.get(f"load_{opcode.name.lower()}", pickle._Unpickler.dispatch[code])
            if opcode.name in ("INT", "LONG", "LONG1", "LONG4"):
                load = partial(_RestrictedUnpickler._load_number, load=load)
            elif opcode.name in MADE:
                load = partial(_RestrictedUnpickler._load_counted, load=load, n_bytes=MADE[opcode.name])
            table[code] = load
        else:
            table[code] = partial(_RestrictedUnpickler._refuse, opcode=opcode.name)
    return table


_RestrictedUnpickler.dispatch = _dispatch()
