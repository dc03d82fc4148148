import collections
import os
import pickle
import pickletools
import subprocess
import sys
import tracemalloc
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from p3dc.errors import InputError
from p3dc.io.plk import ADMITTED, read_plk


class Runs:
    """Unpickles into a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def by_class(path):
    features, counts = read_plk(path)
    return dict(zip(counts, np.split(features, np.cumsum(list(counts.values()))[:-1]), strict=True))


def error_in_another_process(path):
    """The error for a pickle; a crash would fail here and not end the test run."""
    code = f"""
from p3dc.errors import InputError
from p3dc.io.plk import read_plk
try:
    read_plk({str(path)!r})
except InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr}"
    return done.stdout


def text(value):
    return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()


def raw(value):
    return b"B" + len(value).to_bytes(4, "little") + value


def name(module, attribute):
    return text(module) + text(attribute) + b"\x93"


def number(value):
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)


def kind(code, state=None):
    built = name("numpy", "dtype") + text(code) + b"\x89\x88\x87R"
    return built if state is None else built + state + b"b"


LITTLE = b"(K\x03" + text("<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t"
F4 = kind("f4", LITTLE)
# A dtype of one field, which is an object.
HIDDEN = b"(K\x03" + text("|") + b"N" + text("a") + b"\x85}" + text("a") + kind("O8") + b"K\x00\x86s"
HIDDEN += b"K\x08K\x01K\x1bt"
EMPTY = name("numpy._core.multiarray", "_reconstruct") + name("numpy", "ndarray") + b"K\x00\x85" + raw(b"b") + b"\x87R"


def array(dtype, shape, content):
    """An array the way that protocols before 5 build it."""
    return EMPTY + b"(K\x01" + shape + dtype + b"\x89" + content + b"tb"


def buffer(dtype, shape, content, order="C"):
    return name("numpy._core.numeric", "_frombuffer") + b"(" + content + dtype + shape + text(order) + b"tR"


def scalar(dtype, content):
    return name("numpy._core.multiarray", "scalar") + dtype + content + b"\x86R"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("container", [dict, collections.OrderedDict, lambda d: collections.defaultdict(list, d)])
def test_releases_of_every_protocol_are_read(tmp_path, rng, protocol, container):
    content = {c: [row.astype(np.float32) for row in rng.random((3, 5))] for c in (4, 0, 2)}
    (tmp_path / "base.plk").write_bytes(pickle.dumps(container(content), protocol))
    found = by_class(tmp_path / "base.plk")
    assert list(found) == ["4", "0", "2"]
    for label, rows in found.items():
        np.testing.assert_array_equal(rows, content[int(label)])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8", ">f8", "i4", "u1"])
@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        np.ascontiguousarray,
        np.asfortranarray,
        lambda rows: rows[:, ::-1],
        lambda rows: [row.tolist() for row in rows],
        lambda rows: [list(row) for row in rows],
        lambda rows: [tuple(row) for row in rows],
    ],
    ids=["list", "tuple", "array", "Fortran", "strided", "numbers", "scalars", "tuples"],
)
def test_every_form_of_vectors_is_read(tmp_path, protocol, dtype, form):
    rows = np.arange(1, 7).reshape(2, 3).astype(dtype)
    content = {"a": form(rows), np.int64(7): form(rows + 1)}
    (tmp_path / "base.plk").write_bytes(pickle.dumps(content, protocol))
    features, counts = read_plk(tmp_path / "base.plk")
    assert counts == {"a": 2, "7": 2}
    expected = np.concatenate([np.asarray(form(rows)), np.asarray(form(rows + 1))])
    np.testing.assert_array_equal(features, expected)
    assert features.dtype.isnative
    assert features.dtype.kind == expected.dtype.kind


def test_types_that_differ_between_classes_meet_in_one_that_holds_both(tmp_path):
    content = {"a": [np.float16([1, 2])], "b": [np.int32([2**24 + 1, 0])]}
    (tmp_path / "base.plk").write_bytes(pickle.dumps(content))
    features, _ = read_plk(tmp_path / "base.plk")
    assert features.tolist() == [[1, 2], [2**24 + 1, 0]]


def test_a_list_that_two_classes_share_is_read_twice(tmp_path):
    rows = [np.float32([1, 2])]
    (tmp_path / "base.plk").write_bytes(pickle.dumps({"a": rows, "b": rows}))
    assert read_plk(tmp_path / "base.plk")[0].tolist() == [[1, 2], [1, 2]]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("form", [list, np.ascontiguousarray, np.asfortranarray, lambda rows: rows[:, ::-1]])
def test_long_vectors_are_read_from_where_they_lie(tmp_path, rng, protocol, form):
    rows = {c: rng.random((5, 700), dtype=np.float32) for c in "ba"}
    content = {c: form(part) for c, part in rows.items()} | {"c": [rows["a"][0]]}
    (tmp_path / "base.plk").write_bytes(pickle.dumps(content, protocol))
    found = by_class(tmp_path / "base.plk")
    assert list(found) == ["b", "a", "c"]
    for label, part in content.items():
        np.testing.assert_array_equal(found[label], np.asarray(part))


def test_a_cut_pickle_of_long_vectors_is_refused(tmp_path):
    for protocol in (2, 3, 4, 5):
        whole = pickle.dumps({c: [np.ones(1000, dtype=np.float32)] for c in range(3)}, protocol)
        for length in range(0, len(whole), 97):
            (tmp_path / "base.plk").write_bytes(whole[:length])
            with pytest.raises(InputError, match="is damaged or is not a pickle"):
                read_plk(tmp_path / "base.plk")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_memory_is_little_more_than_the_result(tmp_path, protocol):
    content = {c: [np.full(640, c, dtype=np.float32) for _ in range(100)] for c in range(20)}
    size = 20 * 100 * 640 * 4
    (tmp_path / "base.plk").write_bytes(pickle.dumps(content, protocol))
    tracemalloc.start()
    read_plk(tmp_path / "base.plk")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * size


def test_a_pickle_that_repeats_one_vector_for_ever_is_refused(tmp_path):
    rows = [np.ones(20_000)] * 20_000
    (tmp_path / "base.plk").write_bytes(pickle.dumps({"a": rows}))
    with pytest.raises(InputError, match="repeats its vectors until they take 3,200,000,000 bytes"):
        read_plk(tmp_path / "base.plk")


@pytest.mark.parametrize(
    "rows",
    [
        b"]((" + b"K\x01" * 3000 + b"lq\x01" + b"h\x01" * 3000 + b"e",
        buffer(F4, number(2**47) + b"K\x00\x86", raw(b"")),
        buffer(F4, number(2**62) + b"K\x00\x86", raw(b"")),
        name("builtins", "list") + b"q\x02](" + b"N" * 3000 + b"eq\x01" + b"h\x02h\x01\x85R0" * 3000,
    ],
    ids=["one list of numbers", "rows of nothing", "more rows than there are numbers", "copies of a list"],
)
def test_a_small_pickle_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch, rows):
    monkeypatch.setattr("p3dc.io.plk.SMALL", 2**20)
    (tmp_path / "base.plk").write_bytes(b"\x80\x05}" + text("a") + rows + b"s.")
    tracemalloc.start()
    with pytest.raises(InputError, match=r"repeats its vectors over and over|was refused and nothing in it was run"):
        read_plk(tmp_path / "base.plk")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**23


def test_vectors_may_be_lists_of_numbers_or_one_array(tmp_path):
    content = {"a": [[1.0, 2.0]], "b": np.ones((2, 2)), "c": [tuple(map(np.float64, (1, 2)))]}
    (tmp_path / "base.plk").write_bytes(pickle.dumps(content))
    features, counts = read_plk(tmp_path / "base.plk")
    assert counts == {"a": 1, "b": 2, "c": 1}
    assert features.tolist() == [[1, 2], [1, 1], [1, 1], [1, 2]]


def test_pickles_of_old_numpy_and_python_2_are_read(tmp_path):
    new = pickle.dumps({"a": [np.float32([1, 2])]}, protocol=2)
    assert b"numpy._core.multiarray" in new
    (tmp_path / "base.plk").write_bytes(new.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert read_plk(tmp_path / "base.plk")[0].tolist() == [[1, 2]]


def test_arrays_of_python_2_are_read(tmp_path):
    """Their bytes are strings."""
    content = np.float32([1.5, -2]).tobytes()
    long = np.arange(300, dtype=np.float32)
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    state = b"(K\x01K\x02\x85" + F4 + b"\x89U" + bytes([len(content)]) + content + b"t"
    (tmp_path / "base.plk").write_bytes(b"\x80\x02}U\x01a]" + empty + state + b"bas.")
    features, counts = read_plk(tmp_path / "base.plk")
    assert features.tolist() == [[1.5, -2]]
    assert counts == {"a": 1}
    state = b"(K\x01M\x2c\x01\x85" + F4 + b"\x89T" + long.nbytes.to_bytes(4, "little") + long.tobytes() + b"t"
    (tmp_path / "base.plk").write_bytes(b"\x80\x02}U\x01a]" + empty + state + b"bas.")
    assert read_plk(tmp_path / "base.plk")[0].tolist() == [long.tolist()]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (os.system, ("touch {target}",)),
        (eval, ("open({target!r}, 'w')",)),
        (exec, ("open({target!r}, 'w')",)),
        (open, ("{target}", "w")),
        (getattr, ("", "join")),
        (np.fromfile, ("{target}",)),
        (np.memmap, ("{target}", "uint8", "w+", 0, (1,))),
    ],
)
def test_a_pickle_that_would_run_something_is_refused_and_nothing_runs(tmp_path, protocol, function, arguments):
    target = tmp_path / "ran"
    filled = [a.format(target=str(target)) if isinstance(a, str) else a for a in arguments]
    content = {"a": [np.ones(2)], "b": Runs(function, *filled)}
    (tmp_path / "evil.plk").write_bytes(pickle.dumps(content, protocol))
    with pytest.raises(InputError, match=r"was refused and nothing in it was run: it asks for \w+.*Save the features"):
        read_plk(tmp_path / "evil.plk")
    assert not target.exists()


def test_the_codec_that_old_pickles_use_opens_no_other(tmp_path):
    evil = pickle.dumps({"a": Runs(pickletools.codecs.encode, "x", "rot13")}, protocol=2)
    (tmp_path / "evil.plk").write_bytes(evil)
    with pytest.raises(InputError, match="bytes in rot13"):
        read_plk(tmp_path / "evil.plk")


REFUSED = {
    "object dtype": kind("O8"),
    "object dtype in an array": array(kind("O8"), b"K\x02\x85", raw(b"A" * 16)),
    "object dtype in a buffer": buffer(kind("O"), b"K\x02\x85", raw(b"A" * 16)),
    "object dtype by a call of ndarray": name("numpy", "ndarray")
    + b"K\x02\x85"
    + text("O")
    + raw(b"A" * 16)
    + b"\x87R",
    "no object dtype, by a call of ndarray": name("numpy", "ndarray") + b"K\x02\x85" + text("f8") + b"\x86R",
    "hidden object dtype": array(kind("V8", HIDDEN), b"K\x02\x85", raw(b"A" * 16)),
    "hidden object dtype in numbers": array(kind("f8", HIDDEN), b"K\x02\x85", raw(b"A" * 16)),
    "structured dtype": kind("f4,O"),
    "dtype that is no text": name("numpy", "dtype") + b"](" + text("a") + text("O") + b"\x86e\x85R",
    "dtype with a newline": kind("f4\n"),
    "string dtype": kind("S4"),
    "date dtype": kind("M8"),
    "dtype state without byte order": kind("f4", b"(K\x03Nt"),
    "dtype state of no tuple": kind("f4", b"}"),
    "dtype subarray": kind("f4", b"(K\x03" + text("<") + b"K\x02NNt"),
    "dtype metadata": kind("f4", b"(K\x03" + text("<") + b"NNNK\x00K\x00K\x00}t"),
    "too few bytes": array(F4, b"K\x03\x85", raw(b"A" * 8)),
    "too few bytes in a long buffer": buffer(F4, b"M\x2c\x01\x85", raw(b"A" * 1199)),
    "long object scalar": scalar(kind("O8"), raw(b"A" * 1200)),
    "long key": b"}" + text("a" * 1000) + b"Ns",
    "too many bytes": array(F4, b"K\x01\x85", raw(b"A" * 8)),
    "too few bytes in a buffer": buffer(F4, b"K\x03\x85", raw(b"A" * 8)),
    "too few bytes in a scalar": scalar(F4, raw(b"A")),
    "object scalar": scalar(kind("O8"), raw(b"A" * 8)),
    "negative shape": array(F4, number(-2) + b"\x85", raw(b"A" * 8)),
    "two negative lengths": array(F4, number(-1) + number(-2) + b"\x86", raw(b"A" * 8)),
    "huge shape": array(F4, number(2**62) + b"\x85", raw(b"A" * 8)),
    "shape that overflows": array(F4, number(2**62) + number(4) + b"\x86", raw(b"")),
    "shape of no numbers": array(F4, text("a") + b"\x85", raw(b"A" * 4)),
    "shape of no tuple": array(F4, b"]", raw(b"A" * 4)),
    "list of objects for bytes": array(F4, b"K\x01\x85", b"]"),
    "array filled twice": array(F4, b"K\x01\x85", raw(b"A" * 4))
    + b"(K\x01K\x01\x85"
    + F4
    + b"\x89"
    + raw(b"A" * 4)
    + b"tb",
    "array filled from a dict": EMPTY + b"}b",
    "unknown order": buffer(F4, b"K\x01\x85", raw(b"A" * 4), "K"),
    "array of a bare name": array(name("numpy", "dtype"), b"K\x01\x85", raw(b"A" * 4)),
    "large bytearray": name("builtins", "bytearray") + number(2**40) + b"\x85R",
    "other codec": name("_codecs", "encode") + text("a") + text("zip") + b"\x86R",
    "default that is called": name("collections", "defaultdict") + name("numpy", "ndarray") + b"\x85R}b",
    "list filled like a dict": b"]" + text("a") + b"Ns",
    "array filled like a list": array(F4, b"K\x01\x85", raw(b"A" * 4)) + b"Na",
    "call of a list": b"])R",
    "call of a text": text("a") + b")R",
    "state of a list": b"]}b",
    "tuple as a key": b"}N\x85Ns",
    "tuple in a set": b"\x8f(N\x85\x90",
    "tuple in a set by name": name("builtins", "set") + b"]N\x85a\x85R",
    "tuple as a key by name": name("collections", "OrderedDict") + b"]N\x85N\x86a\x85R",
    "EXT1": b"\x82\x01",
    "EXT2": b"\x83\x01\x00",
    "EXT4": b"\x84\x01\x00\x00\x00",
    "PERSID": b"Pa\n",
    "BINPERSID": b"NQ",
    "INST": b"(inumpy\nndarray\n",
    "OBJ": b"(" + name("numpy", "ndarray") + b"o",
    "NEWOBJ": name("numpy", "ndarray") + b")\x81",
    "NEWOBJ_EX": name("numpy", "ndarray") + b")}\x92",
    "FROZENSET": b"(\x91",
    "NEXT_BUFFER": b"\x97",
    "READONLY_BUFFER": b"N\x98",
    **{
        f"{form} of {module}.{attribute}": name(module, attribute) + state + b"b"
        for module, attribute in ADMITTED
        for form, state in {
            "state": b"}" + text("function") + b"Ns",
            "slot state": b"N}" + text("function") + b"Ns\x86",
            "attribute": b"}" + text("__code__") + b"Ns",
        }.items()
    },
    **{f"NEWOBJ of {module}.{attribute}": name(module, attribute) + b")\x81" for module, attribute in ADMITTED},
}


def test_every_way_round_the_reader_is_refused_and_changes_nothing(tmp_path):
    """All in one other process: a crash is a failed test, not a dead run."""
    for i, evil in enumerate(REFUSED.values()):
        (tmp_path / f"{i}.plk").write_bytes(b"\x80\x05}" + text("a") + b"]" + evil + b"as.")
    (tmp_path / "good.plk").write_bytes(pickle.dumps({"a": [np.float32([1, 2])]}))
    code = f"""
from p3dc.errors import InputError
from p3dc.io.plk import read_plk
for i in range({len(REFUSED)}):
    try:
        read_plk(f"{tmp_path}/{{i}}.plk")
        print("read", flush=True)
    except InputError as error:
        print(str(error).replace(chr(10), " "), flush=True)
assert read_plk("{tmp_path}/good.plk")[0].tolist() == [[1, 2]]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    said = dict(zip(REFUSED, done.stdout.splitlines(), strict=False))
    assert done.returncode == 0, f"after {list(said)[-1:]}: {done.stderr}"
    assert len(said) == len(REFUSED)
    for case, sentence in said.items():
        assert "was refused and nothing in it was run" in sentence, (case, sentence)


@pytest.mark.parametrize(
    "evil",
    [
        b"}N" + b"\x85" * 1_000_000 + b"Ns.",  # its hash would overflow the stack
        b"Nr\xff\xff\xff\x7f.",  # a place in the memo
        b"\x96" + (2**40).to_bytes(8, "little"),
        b"\x8e" + (2**62).to_bytes(8, "little"),
        b"\x95" + (2**62).to_bytes(8, "little"),
        b"(" * 1_000_000 + b".",
        b"]" * 1_000_000 + b"a" * 999_999 + b".",
    ],
    ids=["deep key", "far memo", "bytearray", "bytes", "frame", "marks", "deep list"],
)
def test_what_exhausts_other_readers_is_refused(tmp_path, evil):
    (tmp_path / "evil.plk").write_bytes(b"\x80\x05" + evil)
    assert "evil.plk " in error_in_another_process(tmp_path / "evil.plk")


def test_a_stand_in_cannot_be_changed():
    for admitted in ADMITTED.values():
        with pytest.raises(FrozenInstanceError):
            admitted.function = print
        with pytest.raises(InputError, match="tries to change"):
            admitted.set_state({"function": print})
        assert not hasattr(admitted, "__dict__")


def test_nested_names_do_not_slip_through(tmp_path):
    """Protocol 4 looks names with dots up step by step: numpy.ndarray.tofile, say."""
    (tmp_path / "evil.plk").write_bytes(b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.")
    with pytest.raises(InputError, match=r"numpy\.ndarray\.tofile"):
        read_plk(tmp_path / "evil.plk")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([1, 2], "holds a list, not a dict"),
        ({}, "holds a dict, not a dict from class"),
        ({"a": 3}, "has a int for class a"),
        ({"a": [1.0, 2.0]}, "has a float in class a"),
        ({"a": np.ones(2)}, r"has an array of shape \(2,\) and type float64 for class a"),
        ({"a": [np.ones((2, 2))]}, r"has an array of shape \(2, 2\) and type float64 in class a"),
        ({"a": [np.ones(2)], "b": []}, "has no vectors for class b"),
        ({"a": np.ones((0, 3))}, "has no vectors for class a"),
        ({"a": [[1.0], [1.0, 2.0]]}, "vectors of different lengths: 1 in class a and 2 in class a"),
        ({"a": [[1.0]], "b": [[1.0, 2.0]]}, "vectors of different lengths: 1 in class a and 2 in class b"),
        ({"a": [[[1.0]]]}, "has a list in class a"),
        ({"a": [[2**80]]}, "in class a. It must be a list of vectors of numbers"),
        ({"a": [np.array([True])]}, "in class a. It must be a list of vectors of numbers"),
        ({None: [[1.0]]}, "has a class named by None"),
        ({b"a": [[1.0]]}, "has a class named by b'a'"),
        ({float("nan"): [[1.0]]}, "has a class named by nan"),
        ({("a", "b"): [[1.0]]}, "has a tuple where a class should be named"),
        ({1: [[1.0]], "1": [[1.0]]}, "has class 1 twice"),
        ({"a": [["x", "y"]]}, "list of vectors of numbers"),
    ],
)
def test_other_content_is_refused(tmp_path, content, sentence):
    (tmp_path / "base.plk").write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match=sentence):
        read_plk(tmp_path / "base.plk")


def test_a_pickle_cut_anywhere_is_refused(tmp_path):
    whole = pickle.dumps({c: [np.ones(4, dtype=np.float32)] for c in range(3)})
    for length in range(len(whole)):
        (tmp_path / "base.plk").write_bytes(whole[:length])
        with pytest.raises(InputError, match="is damaged or is not a pickle"):
            read_plk(tmp_path / "base.plk")
