"""The files are written here by hand, step by step, as torch writes them."""

import io
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from p3dc.errors import InputError
from p3dc.io.torch_file import MAGIC, STORAGES, read_tensors

KINDS = {np.dtype(code).str: name for name, code in STORAGES.items()}


def text(value):
    return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()


def number(value):
    raw = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def many(values):
    return b"(" + b"".join(map(number, values)) + b"t"


def name(module, attribute):
    return f"c{module}\n{attribute}\n".encode()


def storage(key, kind, count, view=b"N"):
    return b"(" + text("storage") + name("torch", kind) + text(key) + text("cpu") + number(count) + view + b"tQ"


def tensor(pointer, offset, shape, strides, function="_rebuild_tensor_v2"):
    empty = name("collections", "OrderedDict") + b")R"
    rest = number(offset) + many(shape) + many(strides) + b"\x89" + empty
    return name("torch._utils", function) + b"(" + pointer + rest + b"tR"


def whole(array, key):
    """A tensor that is all of its storage, in the order of its own strides."""
    strides = [stride // array.itemsize for stride in array.strides]
    return tensor(storage(key, KINDS[array.dtype.str], array.size), 0, array.shape, strides)


def content(entries, state=b""):
    items = b"".join(text(key) + value for key, value in entries.items())
    return b"\x80\x02" + name("collections", "OrderedDict") + b")R(" + items + b"u" + state + b"."


def old(body, storages, machine=None, magic=MAGIC, version=1001):
    machine = machine or {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}
    head = b"".join(pickle.dumps(part, 2) for part in (magic, version, machine))
    raw = b"".join(flat.size.to_bytes(8, "little") + flat.tobytes() for flat in storages.values())
    return head + body + pickle.dumps(list(storages), 2) + raw


def new(body, storages, compression=zipfile.ZIP_STORED, **more):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("net/data.pkl", body)
        for key, flat in storages.items():
            archive.writestr(f"net/data/{key}", flat.tobytes())
        for part, value in more.items():
            archive.writestr(f"net/{part}", value)
    return file.getvalue()


def one(pointer_count, offset, shape, strides, flat=None):
    """A file of one tensor in a storage of float32."""
    flat = np.arange(6, dtype=np.float32) if flat is None else flat
    return old(content({"w": tensor(storage("0", "FloatStorage", pointer_count), offset, shape, strides)}), {"0": flat})


def small():
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    entries = {"w": whole(weights, "1"), "n": whole(np.array(7, dtype=np.int64), "0")}
    return content(entries), {"0": np.array(7, dtype=np.int64), "1": weights.ravel()}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.pth"


@pytest.mark.parametrize("form", [old, new])
@pytest.mark.parametrize("dtype", STORAGES.values())
def test_tensors_of_every_type_and_order_are_read(path, form, dtype):
    rng = np.random.default_rng(0)
    plain = rng.integers(0, 2, (3, 4, 2)).astype(dtype)
    entries = {"plain": plain, "turned": np.asfortranarray(plain), "scalar": plain[0, 0, 0].copy().reshape(())}
    storages = {str(i): array.ravel(order="K") for i, array in enumerate(entries.values())}
    body = content({key: whole(array, str(i)) for i, (key, array) in enumerate(entries.items())})
    path.write_bytes(form(body, storages))
    found = read_tensors(path)
    assert list(found) == list(entries)
    for key, array in entries.items():
        np.testing.assert_array_equal(found[key], array)
        assert found[key].shape == array.shape
        assert found[key].dtype == np.dtype(dtype).newbyteorder("=")
        assert found[key].flags.c_contiguous
        assert found[key].flags.writeable


def test_a_part_of_a_storage_is_read_by_offset_and_strides(path):
    path.write_bytes(one(6, 1, (2, 2), (3, 1)))
    assert read_tensors(path)["w"].tolist() == [[1, 2], [4, 5]]


def test_tensors_may_share_a_storage(path):
    pointer = storage("0", "FloatStorage", 6)
    entries = {"a": tensor(pointer, 0, (3,), (1,)), "b": tensor(pointer, 3, (3,), (1,), "_rebuild_tensor")}
    path.write_bytes(old(content(entries), {"0": np.arange(6, dtype=np.float32)}))
    found = read_tensors(path)
    assert found["a"].tolist() == [0, 1, 2]
    assert found["b"].tolist() == [3, 4, 5]


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_an_empty_tensor_is_read(path, shape):
    path.write_bytes(one(0, 0, shape, (1,) * len(shape), np.empty(0, dtype=np.float32)))
    assert read_tensors(path)["w"].shape == shape


def test_facts_about_a_state_dict_are_passed_over(path):
    facts = b"}" + text("_metadata") + name("collections", "OrderedDict") + b")R" + b"sb"
    body, storages = small()
    path.write_bytes(old(body[:-1] + facts + b".", storages))
    assert list(read_tensors(path)) == ["w", "n"]


def test_parameters_are_tensors(path):
    inner = whole(np.arange(3, dtype=np.float32), "0")
    wrapped = name("torch._utils", "_rebuild_parameter") + inner + b"\x88" + name("collections", "OrderedDict")
    path.write_bytes(new(content({"w": wrapped + b")R\x87R"}), {"0": np.arange(3, dtype=np.float32)}))
    assert read_tensors(path)["w"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("form", [old, new])
def test_a_file_cut_anywhere_is_refused_in_one_sentence(path, form):
    complete = form(*small())
    for length in range(len(complete)):
        path.write_bytes(complete[:length])
        with pytest.raises(InputError, match="net.pth (is damaged or cannot be read|was refused)"):
            read_tensors(path)


def test_a_file_with_any_byte_changed_is_read_or_refused(path):
    rng = np.random.default_rng(0)
    for form in (old, new):
        complete = form(*small())
        for place in range(len(complete)):
            changed = bytearray(complete)
            changed[place] ^= int(rng.integers(1, 256))
            path.write_bytes(changed)
            try:
                found = read_tensors(path)
            except InputError:
                continue
            assert all(array.size <= 6 for array in found.values())


class Runs:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("function", [eval, exec])
@pytest.mark.parametrize("form", [old, new])
def test_a_file_that_would_run_something_is_refused_and_nothing_runs(path, protocol, function, form):
    target = path.with_name("ran")
    body = pickle.dumps({"w": Runs(function, f"open({str(target)!r}, 'w')")}, protocol)
    path.write_bytes(form(body, {}))
    with pytest.raises(
        InputError, match=r"net.pth was refused and nothing in it was run: it (asks for|takes the step)"
    ):
        read_tensors(path)
    assert not target.exists()


def test_what_was_refused_is_named(path):
    path.write_bytes(old(content({"w": name("os", "system") + text("true") + b"\x85R"}), {}))
    with pytest.raises(InputError, match=r"it asks for os\.system"):
        read_tensors(path)
    path.write_bytes(old(content({"w": name("torch", "BFloat16Storage")}), {}))
    with pytest.raises(InputError, match=r"it asks for torch\.BFloat16Storage"):
        read_tensors(path)


GOOD = storage("0", "FloatStorage", 6)
REFUSED = {
    "a number for a tensor": number(3),
    "a list for a tensor": b"]",
    "a nested dict": b"}",
    "a storage for a tensor": GOOD,
    "a name for a tensor": name("collections", "OrderedDict"),
    "too far": tensor(GOOD, 0, (7,), (1,)),
    "too far by offset": tensor(GOOD, 1, (6,), (1,)),
    "too far by strides": tensor(GOOD, 0, (2, 3), (4, 1)),
    "too far by one stride": tensor(GOOD, 0, (2,), (2**40,)),
    "numbers that overflow": tensor(GOOD, 0, (2**40, 2**40), (2**40, 2**40)),
    "offset that overflows": tensor(GOOD, 2**62, (1,), (1,)),
    "negative offset": tensor(GOOD, -1, (1,), (1,)),
    "negative shape": tensor(GOOD, 0, (-1,), (1,)),
    "negative stride": tensor(GOOD, 5, (2,), (-1,)),
    "fewer strides": tensor(GOOD, 0, (2, 2), (1,)),
    "many axes": tensor(GOOD, 0, (1,) * 40, (1,) * 40),
    "a list for a shape": name("torch._utils", "_rebuild_tensor_v2") + b"(" + GOOD + number(0) + b"]]\x89}tR",
    "no storage": tensor(number(0), 0, (1,), (1,)),
    "view of a storage": tensor(storage("0", "FloatStorage", 6, text("x")), 0, (1,), (1,)),
    "repeated over and over": tensor(GOOD, 0, (2**30,), (0,)),
    "storage that is no tuple": number(1) + b"Q",
    "storage of an unknown kind": b"(" + text("module") + b"NNNNNtQ",
    "storage of a function": b"("
    + text("storage")
    + name("torch._utils", "_rebuild_tensor")
    + text("0")
    + b"NK\x01NtQ",
    "call of a storage": name("torch", "FloatStorage") + b"K\x01\x85R",
    "call of a text": text("a") + b")R",
    "dict of something": name("collections", "OrderedDict") + b"](K\x01K\x02e\x85R",
    "parameter of something": name("torch._utils", "_rebuild_parameter") + b"N\x88N\x87R",
    "state of a tensor": tensor(GOOD, 0, (1,), (1,)) + b"}b",
    "state of a name": name("collections", "OrderedDict") + b"}b",
    "list filled like a dict": b"]" + text("a") + b"Ns",
    "tuple as a key": b"}N\x85Ns",
    "NEWOBJ": name("collections", "OrderedDict") + b")\x81",
    "INST": b"(icollections\nOrderedDict\n",
    "OBJ": b"(" + name("collections", "OrderedDict") + b"o",
    "EXT1": b"\x82\x01",
    "PERSID": b"Pa\n",
    "BYTES": b"C\x01a",
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("form", [old, new])
def test_every_way_round_the_reader_is_refused(path, case, form):
    flat = np.arange(6, dtype=np.float32)
    path.write_bytes(form(content({"w": REFUSED[case]}), {"0": flat}))
    with pytest.raises(InputError, match="net.pth was refused and nothing in it was run: it .*Save only a state dict"):
        read_tensors(path)


EXHAUSTING = {
    "deep key": b"}N" + b"\x85" * 300_000 + b"Ns.",  # its hash would overflow the stack
    "far memo": b"Nr\xff\xff\xff\x7f.",
    "text": b"\x8d" + (2**62).to_bytes(8, "little"),
    "marks": b"(" * 300_000 + b".",
    "deep list": b"]" * 300_000 + b"a" * 299_999 + b".",
    "deep argument": name("collections", "OrderedDict") + b"N" + b"\x85" * 300_000 + b"R.",
}


def test_what_exhausts_other_readers_is_refused(tmp_path):
    """In another process: a crash is a failed test, not a dead run."""
    for case, evil in EXHAUSTING.items():
        (tmp_path / f"{case}.pth").write_bytes(old(b"\x80\x04" + evil, {}))
    code = f"""
from p3dc.errors import InputError
from p3dc.io.torch_file import read_tensors
for case in {list(EXHAUSTING)}:
    try:
        read_tensors(f"{tmp_path}/{{case}}.pth")
    except InputError as error:
        print(error, flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr[-2000:])
    for case, sentence in zip(EXHAUSTING, done.stdout.splitlines(), strict=True):
        assert f"{case}.pth " in sentence


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"magic": 3}, "does not begin as torch's files do"),
        ({"version": 1002}, "unknown version"),
        ({"machine": {"little_endian": False}}, "not little-endian"),
        ({"machine": [1]}, "not little-endian"),
    ],
)
def test_other_heads_are_refused(path, change, sentence):
    path.write_bytes(old(*small(), **change))
    with pytest.raises(InputError, match=sentence):
        read_tensors(path)


def test_storages_must_be_those_of_the_tensors(path):
    body, storages = small()
    for wrong, sentence in (
        ({"0": storages["0"]}, "lacks storages"),
        (storages | {"2": storages["0"]}, "not those of its tensors"),
        (storages | {"1": storages["1"][:5]}, "says that it has 5 elements"),
    ):
        path.write_bytes(old(body, wrong))
        with pytest.raises(InputError, match=sentence):
            read_tensors(path)
    path.write_bytes(new(body, {"0": storages["0"]}))
    with pytest.raises(InputError, match="lacks storages"):
        read_tensors(path)


def test_a_storage_larger_than_the_file_is_refused_before_it_is_made(path):
    flat = np.arange(6, dtype=np.float32)
    body = content({"w": tensor(storage("0", "FloatStorage", 2**40), 0, (1,), (1,))})
    path.write_bytes(old(body, {"0": flat}).replace((6).to_bytes(8, "little"), (2**40).to_bytes(8, "little")))
    with pytest.raises(InputError, match="it ends too early"):
        read_tensors(path)


def test_two_storages_of_one_key_are_refused(path):
    entries = {
        "a": tensor(storage("0", "FloatStorage", 6), 0, (1,), (1,)),
        "b": tensor(storage("0", "LongStorage", 6), 0, (1,), (1,)),
    }
    path.write_bytes(old(content(entries), {"0": np.arange(6, dtype=np.float32)}))
    with pytest.raises(InputError, match="two storages of one key"):
        read_tensors(path)


def test_other_zips_are_refused(path):
    body, storages = small()
    path.write_bytes(new(body, storages, zipfile.ZIP_DEFLATED))
    with pytest.raises(InputError, match="compressed"):
        read_tensors(path)
    path.write_bytes(new(body, storages, byteorder="big"))
    with pytest.raises(InputError, match="not little-endian"):
        read_tensors(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "")
    with pytest.raises(InputError, match="a zip without a data.pkl"):
        read_tensors(path)


@pytest.mark.parametrize("raw", [b"", b"PK", b"hello", b"\x80", pickle.dumps({"a": 1})])
def test_other_files_are_refused(path, raw):
    path.write_bytes(raw)
    with pytest.raises(InputError, match="net.pth"):
        read_tensors(path)


def test_no_file_is_refused(path):
    with pytest.raises(InputError, match="net.pth is damaged or cannot be read"):
        read_tensors(path)
