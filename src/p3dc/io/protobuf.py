"""Messages in the wire format of protocol buffers, field by field, without their schema.

A message is a sequence of fields. Each begins with its number and its wire type, and holds an integer, bytes (text,
packed numbers or another message), or four or eight bytes.
"""

from collections.abc import Iterator
from typing import NamedTuple

INTEGER, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
"""Wire types."""

LONGEST = 10
"""Bytes of the longest integer, of 64 bits in groups of seven."""

Message = bytes | memoryview


class Field(NamedTuple):
    """A field as it was read."""

    number: int
    value: int | memoryview
    """An integer without its sign, or the bytes."""

    whole: memoryview
    """Number and value as they stand in the message."""


def read_fields(message: Message) -> Iterator[Field]:
    """Read the fields of a message in order, without copying. What is no message ends in a ValueError.

    Examples
    --------
    >>> from p3dc.io.protobuf import read_fields, write_field
    >>> [(field.number, field.value) for field in read_fields(write_field(1, 300) + write_field(2, 7))]
    [(1, 300), (2, 7)]
    """
    view, at = memoryview(message), 0
    while at < len(view):
        start = at
        key, at = _read_integer(view, at)
        number, kind = key >> 3, key & 7
        value: int | memoryview
        if kind == INTEGER:
            value, at = _read_integer(view, at)
        else:
            if kind == BYTES:
                size, at = _read_integer(view, at)
            elif kind in (EIGHT_BYTES, FOUR_BYTES):
                size = 8 if kind == EIGHT_BYTES else 4
            else:
                raise ValueError(f"a field has the wire type {kind}")
            value, at = view[at : at + size], at + size
        if at > len(view) or number == 0:
            raise ValueError("a field is cut short or has no number")
        yield Field(number, value, view[start:at])


def read_integers(packed: Message) -> list[int]:
    """Read integers that are packed into one field."""
    view, at, found = memoryview(packed), 0, []
    while at < len(view):
        value, at = _read_integer(view, at)
        found.append(value)
    return found


def write_field(number: int, value: int | str | Message) -> bytes:
    """Write a field: an integer, text, or bytes."""
    if isinstance(value, int):
        return _write_integer(number << 3 | INTEGER) + _write_integer(value)
    content = value.encode() if isinstance(value, str) else value
    return b"".join((_write_integer(number << 3 | BYTES), _write_integer(len(content)), content))


def _read_integer(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(view[at : at + LONGEST]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("an integer is cut short or too long")


def _write_integer(value: int) -> bytes:
    value &= 2**64 - 1  # a negative one is its complement
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
