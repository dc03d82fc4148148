"""Messages are what the reference implementation of protocol buffers reads and writes."""

import pytest
from google.protobuf import descriptor_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from p3dc.io.protobuf import read_fields, read_integers, write_field

SIGNED = st.integers(-(2**63), 2**63 - 1)


@given(SIGNED)
def test_integers_are_written_as_the_reference_writes_them(value):
    expected = wrappers_pb2.Int64Value(value=value).SerializeToString()
    assert write_field(1, value) == expected or value == 0  # which the reference leaves out
    assert wrappers_pb2.Int64Value.FromString(write_field(1, value)).value == value
    ((number, found, whole),) = read_fields(write_field(1, value))
    assert (number, found, bytes(whole)) == (1, value % 2**64, write_field(1, value))


@given(st.text(min_size=1, max_size=300))
def test_text_is_written_as_the_reference_writes_it(text):
    assert write_field(1, text) == wrappers_pb2.StringValue(value=text).SerializeToString()
    assert [bytes(field.value) for field in read_fields(write_field(1, text))] == [text.encode()]


def test_other_wire_types_are_passed_over():
    fixed = (
        wrappers_pb2.DoubleValue(value=0.1).SerializeToString() + wrappers_pb2.FloatValue(value=2).SerializeToString()
    )
    fields = [*read_fields(fixed + write_field(3, 4))]
    assert [field.number for field in fields] == [1, 1, 3]
    assert b"".join(field.whole for field in fields) == fixed + write_field(3, 4)


def test_packed_integers():
    location = descriptor_pb2.SourceCodeInfo.Location(path=[0, 127, 128, 70_000])
    ((_, packed, _),) = read_fields(location.SerializeToString())
    assert read_integers(packed) == [0, 127, 128, 70_000]


@given(st.binary(max_size=40))
def test_what_is_read_is_the_whole_message_or_an_error(content):
    try:
        fields = [*read_fields(content)]
    except ValueError:
        return
    assert b"".join(field.whole for field in fields) == content


@pytest.mark.parametrize(
    "content", [b"\x08", b"\x08\xff", b"\x08" + b"\xff" * 10, b"\x0a\x02x", b"\x0d123", b"\x0b", b"\0\0"]
)
def test_what_is_cut_short_or_no_message_is_refused(content):
    with pytest.raises(ValueError, match="cut short|wire type"):
        [*read_fields(content)]
