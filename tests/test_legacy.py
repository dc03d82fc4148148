import collections
import os
import pickle
import pickletools

import numpy as np
import pytest

from p3dc.errors import InputError
from p3dc.legacy import read_plk


class Runs:
    """Unpickles into a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("container", [dict, collections.OrderedDict, lambda d: collections.defaultdict(list, d)])
def test_releases_of_every_protocol_are_read(tmp_path, rng, protocol, container):
    content = {c: [row.astype(np.float32) for row in rng.random((3, 5))] for c in (4, 0, 2)}
    (tmp_path / "base.plk").write_bytes(pickle.dumps(container(content), protocol))
    found = read_plk(tmp_path / "base.plk")
    assert list(found) == [4, 0, 2]
    for name, rows in found.items():
        np.testing.assert_array_equal(rows, content[name])


def test_vectors_may_be_lists_of_numbers_or_one_array(tmp_path):
    content = {"a": [[1.0, 2.0]], "b": np.ones((2, 2)), "c": [tuple(map(np.float64, (1, 2)))]}
    (tmp_path / "base.plk").write_bytes(pickle.dumps(content))
    assert {name: rows.shape for name, rows in read_plk(tmp_path / "base.plk").items()} == {
        "a": (1, 2),
        "b": (2, 2),
        "c": (1, 2),
    }


def test_pickles_of_old_numpy_and_python_2_are_read(tmp_path):
    new = pickle.dumps({"a": [np.float32([1, 2])]}, protocol=2)
    assert b"numpy._core.multiarray" in new
    (tmp_path / "base.plk").write_bytes(new.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    np.testing.assert_array_equal(read_plk(tmp_path / "base.plk")["a"], [[1, 2]])


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
        ({"a": [1.0, 2.0]}, r"an array of shape \(2,\)"),
        ({"a": [[1.0], [1.0, 2.0]]}, "vectors of different lengths in class a"),
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
