import copy
import json
import os
import pickle
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from p3dc import FeatureSet, Priors, _arrays, features
from p3dc.errors import InputError
from p3dc.features import stream_features


def assert_equal(one, two):
    np.testing.assert_array_equal(one.features, two.features)
    np.testing.assert_array_equal(one.labels, two.labels)
    assert one.class_names == two.class_names
    assert one.features.dtype == two.features.dtype
    assert (one.ids is None) == (two.ids is None)
    if one.ids is not None:
        np.testing.assert_array_equal(one.ids, two.ids)


@pytest.mark.parametrize("ending", ["npz", "parquet"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_what_is_saved_is_what_is_loaded(tmp_path_factory, ending, data):
    dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64]))
    shape = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 5)))
    limit = 1000.0
    rows = data.draw(hnp.arrays(dtype, shape, elements={"min_value": -limit, "max_value": limit, "allow_nan": False}))
    names = data.draw(
        st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), min_size=1, unique=True)
    )
    labels = data.draw(hnp.arrays(np.int64, shape[:1], elements=st.integers(0, len(names) - 1)))
    ids = data.draw(st.sampled_from([None, [f"photo {i}.jpg" for i in range(shape[0])]]))
    path = tmp_path_factory.mktemp("features") / f"set.{ending}"
    features = FeatureSet(rows, labels, names, ids)
    features.save(path)
    assert_equal(FeatureSet.load(path), features)


def test_labels_without_names_are_sorted_and_numbered():
    features = FeatureSet(np.ones((4, 2)), [30, 5, 30, 100])
    assert features.class_names == ("5", "30", "100")
    assert features.labels.tolist() == [1, 0, 1, 2]


def test_features_cannot_be_changed_so_copies_are_free(novel):
    assert copy.deepcopy(novel) is novel
    with pytest.raises(ValueError, match="read-only"):
        novel.features[0, 0] = 1


def test_features_out_of_a_pickle_cannot_be_changed_either(novel):
    named = FeatureSet(novel.features, novel.labels, novel.class_names, [str(i) for i in range(len(novel))])
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        found = pickle.loads(pickle.dumps(named, protocol))
        assert_equal(found, named)
        for array in (found.features, found.labels, found.ids):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 1


def test_labels_may_be_objects_of_one_type():
    for labels in (["b", "a"], [2, 1], [np.int64(2), np.int64(1)], [2.5, 1.5]):
        found = FeatureSet(np.ones((2, 2)), np.array(labels, dtype=object))
        assert_equal(found, FeatureSet(np.ones((2, 2)), labels))


@pytest.mark.parametrize("folder", ["_temporary", ".hidden", "a/_temporary/0", "a/.b"])
def test_hidden_and_temporary_parts_are_skipped(tmp_path, novel, folder):
    whole = tmp_path / ".work" / "_set"  # what the folder itself is called does not matter
    for place in ("year=2020", folder):
        (whole / place).mkdir(parents=True)
        novel.save(whole / place / "part.parquet")
    (whole / "empty.parquet").mkdir()
    assert_equal(FeatureSet.load(whole), novel)


def write_part(path, values, kind, labels=("a", "b")):
    column = pa.array(values, pa.list_(kind))
    pq.write_table(pa.table({"embedding": column, "label": pa.array(list(labels))}), path)


@pytest.mark.parametrize(
    ("one", "two", "common"),
    [
        (pa.int32(), pa.float32(), np.float64),
        (pa.float32(), pa.int32(), np.float64),
        (pa.int8(), pa.uint8(), np.float64),
        (pa.float16(), pa.float32(), np.float32),
        (pa.float32(), pa.float64(), np.float64),
        (pa.float16(), pa.float16(), np.float16),
    ],
)
def test_parts_of_different_numbers_meet_in_a_type_that_holds_both(tmp_path, one, two, common):
    for part, kind in {"1": one, "2": two}.items():
        rows = [[1, 2], [3, 4]] if pa.types.is_integer(kind) else np.array([[0.5, 1.5], [2.5, 3.5]], np.float16)
        write_part(tmp_path / f"{part}.parquet", list(rows), kind)
    found = FeatureSet.load(tmp_path)
    assert found.features.dtype == common
    expected = [[1, 2], [3, 4]] if pa.types.is_integer(one) else [[0.5, 1.5], [2.5, 3.5]]
    assert found.features[:2].tolist() == expected
    assert {rows.dtype.kind for rows, _, _ in stream_features(tmp_path)} == {"f"}


def test_parts_with_numbers_and_text_for_labels_fit_together(tmp_path):
    write_part(tmp_path / "1.parquet", [[1.0], [2.0]], pa.float32(), [1, 10])
    write_part(tmp_path / "2.parquet", [[3.0], [4.0]], pa.float32(), ["1", "2"])
    assert FeatureSet.load(tmp_path).class_names == ("1", "10", "2")
    priors = Priors.from_batches((rows, labels) for rows, labels, _ in stream_features(tmp_path))
    assert priors.class_names == ("1", "10", "2")
    assert priors.prototypes.tolist() == [[2], [2], [4]]


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_a_stream_reports_its_progress(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(_arrays, "BLOCK_BYTES", 2**14)
    whole = FeatureSet(np.ones((5000, 2), dtype=np.float32), np.arange(5000) % 7)
    whole.save(tmp_path / f"rows.{ending}")
    steps, read = [], 0
    for rows, _, _ in stream_features(tmp_path / f"rows.{ending}", progress=lambda *step: steps.append(step)):
        assert steps[-1:] == ([(read, 5000)] if read else [])
        read += len(rows)
    assert len(steps) > 1
    assert steps[-1] == (5000, 5000)


@pytest.mark.parametrize("group", [2048, 10**6])
def test_memory_of_a_stream_does_not_grow_with_the_file(tmp_path, rng, group):
    """Neither with the number of row groups nor with their length."""
    peaks = []
    for n_rows in (8_192, 65_536):
        rows = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(n_rows * 128, dtype=np.float32)), 128)
        table = pa.table({"embedding": rows, "label": pa.array(rng.integers(0, 9, n_rows))})
        path = tmp_path / f"{n_rows}.parquet"
        pq.write_table(table, path, row_group_size=group, use_dictionary=False)
        del rows, table
        before, peak = pa.total_allocated_bytes(), 0
        for _ in stream_features(path):
            peak = max(peak, pa.total_allocated_bytes() - before)
        peaks.append(peak)
    assert peaks[1] < 1.3 * peaks[0]
    assert peaks[1] < 0.4 * 65_536 * 128 * 4


def test_the_format_of_a_file_is_asked_once(tmp_path, novel, monkeypatch):
    asked = []
    real = features._format_of
    monkeypatch.setattr(features, "_format_of", lambda path: (asked.append(path), real(path))[1])
    for ending in ("npz", "parquet"):
        novel.save(tmp_path / f"set.{ending}")
        FeatureSet.load(tmp_path / f"set.{ending}")
        list(stream_features(tmp_path / f"set.{ending}"))
    assert len(asked) == 4


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8", np.longdouble])
def test_numbers_of_types_that_parquet_does_not_have_are_saved_as_others(tmp_path, dtype):
    rows = np.array([[0.5, 1.5], [2.5, 3.5]], dtype)
    for ending in ("npz", "parquet"):
        FeatureSet(rows, ["a", "b"]).save(tmp_path / f"set.{ending}")
        np.testing.assert_array_equal(FeatureSet.load(tmp_path / f"set.{ending}").features, rows)


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_half_characters_are_refused_on_save(tmp_path, ending):
    for some in (FeatureSet([[1.0]], ["\ud800"]), FeatureSet([[1.0]], ["a"], ids=["\ud800"])):
        with pytest.raises(InputError, match="half a character"):
            some.save(tmp_path / f"set.{ending}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ["npz", "parquet", "plk"])
def test_a_sentence_about_content_names_the_file(tmp_path, ending):
    path = tmp_path / f"set.{ending}"
    if ending == "npz":
        np.savez(path, features=[[1.0], [np.nan]], labels=[0, 0])
    elif ending == "parquet":
        write_part(path, [[1.0], [np.nan]], pa.float32())
    else:
        path.write_bytes(pickle.dumps({"a": [[1.0], [np.nan]]}))
    for read in (FeatureSet.load, lambda path: Priors.from_features(FeatureSet.load(path))):
        with pytest.raises(InputError, match=rf"set\.{ending}: features row 1 has NaN at feature 0"):
            read(path)


def test_a_folder_of_parts_is_one_set(tmp_path, novel):
    ids = [f"{i}.jpg" for i in range(len(novel))]
    whole = FeatureSet(novel.features, novel.labels, novel.class_names, ids)
    for part, rows in enumerate(np.array_split(np.arange(len(novel)), 3)):
        some = FeatureSet(novel.features[rows], novel.labels[rows], novel.class_names, np.array(ids)[rows])
        some.save(tmp_path / f"part-{part}.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert_equal(FeatureSet.load(tmp_path), whole)


def test_parquet_of_others_is_read_whatever_its_list_and_label_types(tmp_path):
    rows = [[0.5, 1.0], [2.0, 3.0], [4.0, 5.0]]
    for lists in (pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 2)):
        for labels, names in (
            (pa.array(["b", "a", "b"]), ("a", "b")),
            (pa.array(["b", "a", "b"]).dictionary_encode(), ("a", "b")),
            (pa.array([10, 9, 10]), ("9", "10")),
        ):
            table = pa.table({"vector": pa.array(rows, lists), "class": labels})
            pq.write_table(table, tmp_path / "other.parquet")
            features = FeatureSet.load(tmp_path / "other.parquet", columns=("vector", "class", "id"))
            np.testing.assert_array_equal(features.features, rows)
            assert features.class_names == names
            assert features.labels.tolist() == [1, 0, 1]
            assert features.ids is None


def test_a_stream_holds_the_same_rows(tmp_path, novel):
    for ending in ("npz", "parquet"):
        path = tmp_path / f"set.{ending}"
        novel.save(path)
        batches = list(stream_features(path))
        np.testing.assert_array_equal(np.concatenate([batch[0] for batch in batches]), novel.features)
        labels = np.concatenate([batch[1] for batch in batches])
        np.testing.assert_array_equal(labels, np.array(novel.class_names)[novel.labels])


def test_legacy_pickles_keep_the_order_of_their_classes(tmp_path):
    content = {7: [np.float32([1, 2]), np.float32([3, 4])], 3: [np.float32([5, 6])]}
    (tmp_path / "base.plk").write_bytes(pickle.dumps(content))
    features = FeatureSet.load(tmp_path / "base.plk")
    assert features.class_names == ("7", "3")
    assert features.labels.tolist() == [0, 0, 1]
    np.testing.assert_array_equal(features.features, [[1, 2], [3, 4], [5, 6]])
    assert features.features.dtype == np.float32


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"features": [[1.0, np.nan]], "labels": [0]}, "features row 0 has NaN at feature 1"),
        ({"features": [[1.0, 2.0], [np.inf, 1.0]], "labels": [0, 1]}, "features row 1 has infinity at feature 0"),
        ({"features": np.ones((2, 3)), "labels": [0, 1, 1]}, r"labels have shape \(3,\), but there are 2 rows"),
        ({"features": np.ones((0, 3)), "labels": []}, "features are empty"),
        ({"features": np.ones((2, 0)), "labels": [0, 1]}, "features are empty"),
        ({"features": np.ones(3), "labels": [0, 1, 2]}, "must have two axes"),
        ({"features": [[1.0], [1.0, 2.0]], "labels": [0, 1]}, "rows of different lengths"),
        ({"features": [["a"]], "labels": [0]}, "must be real numbers"),
        ({"features": [[1j]], "labels": [0]}, "must be real numbers"),
        ({"features": [[1.0]], "labels": [1], "class_names": ["a"]}, "numbers from 0 to 0"),
        ({"features": [[1.0]], "labels": ["a"], "class_names": ["a"]}, "numbers from 0 to 0"),
        ({"features": [[1.0]], "labels": [0], "class_names": ["a", "a"]}, "'a' twice"),
        ({"features": [[1.0]], "labels": [0], "ids": ["x", "y"]}, r"ids have shape \(2,\)"),
        ({"features": [[1.0], [2.0]], "labels": ["a", None]}, "row 1 has None for its label"),
        ({"features": [[1.0], [2.0]], "labels": [1, None]}, "row 1 has None for its label"),
        ({"features": [[1.0], [2.0]], "labels": [1.0, np.nan]}, "row 1 has nan for its label"),
        ({"features": [[1.0], [2.0]], "labels": np.array(["a", np.nan], dtype=object)}, "row 1 has nan for its label"),
        ({"features": [[1.0], [2.0]], "labels": ["a", 1]}, "row 1 has 1 for its label, but row 0 has 'a'"),
        ({"features": [[1.0], [2.0]], "labels": [b"a", b"b"]}, "row 0 has b'a' for its label"),
        ({"features": [[1.0], [2.0]], "labels": np.array([b"a", b"b"])}, r"labels are of type \|S1"),
        ({"features": [[1.0], [2.0]], "labels": [[1], [1, 2]]}, "labels are lists of different lengths"),
        ({"features": [[1.0], [2.0]], "labels": ["a", "b"], "ids": ["x", None]}, "row 1 has None for its id"),
        ({"features": [[1.0]], "labels": [0], "class_names": [None]}, "class_names has None at place 0"),
        ({"features": [[1.0]], "labels": [0], "class_names": [b"a"]}, "class_names has b'a' at place 0"),
        ({"features": [[1.0]], "labels": [0], "class_names": "a"}, "class_names is 'a'. Give a list of names"),
        ({"features": [[1.0]], "labels": [0], "class_names": 1}, "class_names is 1. Give a list of names"),
        ({"features": [[1.0]], "labels": [0], "class_names": np.array("a")}, r"class_names have shape \(\)"),
    ],
)
def test_bad_sets_are_refused_in_one_sentence(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        FeatureSet(**arguments)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.npz does not exist"):
        FeatureSet.load(tmp_path / "gone.npz")


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"holds no \.parquet parts"):
        FeatureSet.load(tmp_path)


def test_unknown_endings_are_refused(tmp_path, novel):
    (tmp_path / "set.csv").write_text("1,2")
    with pytest.raises(InputError, match=r"ends in '\.csv'. Features are read from \.npz, \.parquet and \.plk"):
        FeatureSet.load(tmp_path / "set.csv")
    with pytest.raises(InputError, match=r"Features are written as \.npz or \.parquet"):
        novel.save(tmp_path / "set.csv")


@pytest.mark.parametrize("ending", ["npz", "parquet"])
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.7, 0.99])
def test_a_truncated_file_is_refused(tmp_path, novel, ending, kept):
    path = tmp_path / f"set.{ending}"
    novel.save(path)
    os.truncate(path, int(kept * path.stat().st_size))
    with pytest.raises(InputError, match=r"is damaged"):
        FeatureSet.load(path)


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_a_file_with_garbage_inside_is_refused(tmp_path, novel, ending):
    path = tmp_path / f"set.{ending}"
    novel.save(path)
    content = bytearray(path.read_bytes())
    for start in range(200, len(content) - 2000, 997):
        content[start : start + 40] = b"\xff" * 40
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"is damaged|has NaN|has infinity"):
        FeatureSet.load(path)


@pytest.mark.parametrize("ending", ["npz", "parquet", "plk"])
def test_a_file_that_is_something_else_is_refused(tmp_path, ending):
    path = tmp_path / f"set.{ending}"
    path.write_bytes(b"<html>404</html>" * 50)
    with pytest.raises(InputError, match=r"is damaged or is not"):
        FeatureSet.load(path)


def test_an_npz_of_other_arrays_says_what_it_holds(tmp_path):
    np.savez(tmp_path / "set.npz", x=np.ones(3))
    with pytest.raises(InputError, match="lacks features, labels; it holds x"):
        FeatureSet.load(tmp_path / "set.npz")


def test_an_npz_of_python_objects_is_not_unpickled(tmp_path):
    np.savez(tmp_path / "set.npz", features=np.array([print], dtype=object), labels=np.zeros(1))
    with pytest.raises(InputError, match="features.npy holds pickled objects, which are not read"):
        FeatureSet.load(tmp_path / "set.npz")


def test_a_zip_that_is_no_npz_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "set.npz", "w") as file:
        file.writestr("readme.txt", "hello")
    with pytest.raises(InputError, match="lacks features, labels"):
        FeatureSet.load(tmp_path / "set.npz")


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"vector": [[1.0]], "label": ["a"]}, "has no column 'embedding'; it has vector, label"),
        ({"embedding": [[1.0]]}, "has no column 'label'"),
        ({"embedding": [1.0], "label": ["a"]}, "They must be lists of numbers"),
        ({"embedding": [["x"]], "label": ["a"]}, "must be real numbers"),
        ({"embedding": [[1.0], [1.0, 2.0]], "label": ["a", "b"]}, "row 1 has no embedding, or one of another length"),
        ({"embedding": [[1.0], None], "label": ["a", "b"]}, "row 1 has no embedding"),
        ({"embedding": [[1.0], [None]], "label": ["a", "b"]}, "missing numbers"),
        ({"embedding": [[1.0], [2.0]], "label": ["a", None]}, "row 1 has no label"),
        ({"embedding": pa.array([], pa.list_(pa.float32())), "label": pa.array([], pa.string())}, "has no rows"),
    ],
)
def test_bad_parquet_is_refused_in_one_sentence(tmp_path, table, sentence):
    pq.write_table(pa.table(table), tmp_path / "set.parquet")
    with pytest.raises(InputError, match=sentence):
        FeatureSet.load(tmp_path / "set.parquet")


def test_parts_of_different_backbones_are_refused(tmp_path):
    FeatureSet([[1.0, 2.0]], ["a"]).save(tmp_path / "one.parquet")
    FeatureSet([[1.0, 2.0, 3.0]], ["a"]).save(tmp_path / "two.parquet")
    with pytest.raises(InputError, match=r"two\.parquet has vectors of 3 features, but the parts before have 2"):
        FeatureSet.load(tmp_path)


def test_saving_into_a_missing_folder_leaves_nothing_behind(tmp_path, novel):
    with pytest.raises(InputError, match="gone is not a folder. Make it first"):
        novel.save(tmp_path / "gone" / "set.npz")
    assert list(tmp_path.iterdir()) == []


def npy(header, content=b""):
    """An array file with any header."""
    text = repr(header).encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


def test_an_npz_that_cannot_be_read_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "set.npz"
    for header in (
        {"descr": "<f4", "fortran_order": False, "shape": (2**50, 4)},
        {"descr": "<f4", "fortran_order": False, "shape": (2**62, 2**62)},
        {"descr": "<f4", "fortran_order": False, "shape": (-4, 4)},
        {"descr": "nonsense", "fortran_order": False, "shape": (1, 1)},
        {"descr": "|O", "fortran_order": False, "shape": (1, 1)},
        {"shape": 3},
    ):
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("features.npy", npy(header, b"A" * 8))
            file.writestr("labels.npy", npy({"descr": "<i8", "fortran_order": False, "shape": (1,)}, bytes(8)))
        with pytest.raises(InputError, match=r"set\.npz is damaged or cannot be read \(.+\)"):
            FeatureSet.load(path)


@pytest.mark.parametrize(("flag", "method"), [(1, 0), (0, 97), (0, 8)], ids=["encrypted", "unknown", "not deflated"])
def test_an_npz_packed_in_an_unknown_way_is_refused(tmp_path, novel, flag, method):
    path = tmp_path / "set.npz"
    novel.save(path)
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.find(mark)
        content[start + offset] |= flag
        content[start + offset + 2] = method
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"set\.npz is damaged or cannot be read \(.+\)"):
        FeatureSet.load(path)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"class_names": np.array("a")}, r"class_names have shape \(\)"),
        ({"class_names": np.array([["a", "b"]])}, r"class_names have shape \(1, 2\)"),
        ({"class_names": np.array([b"a"])}, "class_names has b'a' at place 0"),
        ({"labels": np.zeros((1, 1), dtype=int)}, r"labels have shape \(1, 1\)"),
        ({"labels": np.array(0)}, r"labels have shape \(\)"),
        ({"ids": np.array(["a", "b"])}, r"ids have shape \(2,\)"),
        ({"features": np.array(1.0)}, "must have two axes"),
    ],
)
def test_an_npz_of_wrong_shapes_is_refused(tmp_path, arrays, sentence):
    np.savez(tmp_path / "set.npz", **{"features": np.ones((1, 2)), "labels": np.zeros(1, dtype=int)} | arrays)
    with pytest.raises(InputError, match=rf"set\.npz: .*{sentence}"):
        FeatureSet.load(tmp_path / "set.npz")


@pytest.mark.parametrize("names", ["[", "5", '{"a": 1}', "[1]", '"ab"', "[" * 100_000, b"\xff"])
def test_class_names_in_parquet_that_are_no_list_of_names_are_refused(tmp_path, names):
    schema = pa.schema([("embedding", pa.list_(pa.float32())), ("label", pa.string())])
    table = pa.table([[[1.0]], ["a"]], schema=schema.with_metadata({b"p3dc.class_names": names}))
    pq.write_table(table, tmp_path / "set.parquet")
    with pytest.raises(InputError, match=r"has metadata p3dc\.class_names that are not a JSON list of names"):
        FeatureSet.load(tmp_path / "set.parquet")


@pytest.mark.parametrize("read", [FeatureSet.load, lambda path: list(stream_features(path))])
@pytest.mark.parametrize(
    ("names", "columns", "sentence"),
    [
        (["embedding", "label", "label"], [[[1.0]], ["a"], ["b"]], "has 2 columns 'label'. Rename all but one"),
        (["embedding", "embedding", "label"], [[[1.0]], [[1.0]], ["b"]], "has 2 columns 'embedding'"),
        (["embedding", "label", "id", "id"], [[[1.0]], ["a"], ["x"], ["y"]], "has 2 columns 'id'"),
        (["embedding", "label"], [[[1.0]], [["a"]]], "has a column 'label' of type list<.*It must be text or numbers"),
        (["embedding", "label"], [[[1.0]], [{"a": 1}]], "has a column 'label' of type struct"),
        (["embedding", "label"], [[[1.0]], [b"a"]], "has a column 'label' of type binary"),
        (["embedding", "label"], [[[1.0], [2.0]], [1.0, float("nan")]], "row 1 has NaN for its label"),
        (["embedding", "label", "id"], [[[1.0]], ["a"], [["x"]]], "has a column 'id' of type list"),
    ],
)
def test_columns_that_say_nothing_are_refused(tmp_path, read, names, columns, sentence):
    pq.write_table(pa.table([pa.array(column) for column in columns], names=names), tmp_path / "set.parquet")
    with pytest.raises(InputError, match=rf"set\.parquet.* {sentence}"):
        read(tmp_path / "set.parquet")


def test_parts_with_and_without_ids_do_not_fit_together(tmp_path):
    FeatureSet([[1.0]], ["a"], ids=["x"]).save(tmp_path / "1.parquet")
    FeatureSet([[1.0]], ["a"]).save(tmp_path / "2.parquet")
    with pytest.raises(InputError, match="has parts with ids and parts without"):
        FeatureSet.load(tmp_path)


def test_a_part_without_rows_passes_whatever_its_types(tmp_path):
    write_part(tmp_path / "1.parquet", [[1.0], [2.0]], pa.float32())
    pq.write_table(pa.table({"embedding": pa.array([], pa.null())}), tmp_path / "0.parquet")
    assert len(FeatureSet.load(tmp_path)) == 2
    assert len(list(stream_features(tmp_path))) == 1


def test_class_names_may_be_kept_by_parquet(tmp_path):
    FeatureSet([[1.0]], [1], ["b", "a"]).save(tmp_path / "set.parquet")
    assert json.loads(pq.read_schema(tmp_path / "set.parquet").metadata[b"p3dc.class_names"]) == ["b", "a"]
    assert FeatureSet.load(tmp_path / "set.parquet").class_names == ("b", "a")


ROWS = np.array([[1.0, 0.5], [2.0, 0.25], [0.0, 4.0]], dtype=np.float32)
NAMES = ["wren", "wren", "robin"]


def test_a_column_of_vectors_is_read_like_an_array():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"embedding": list(ROWS), "label": NAMES})
    expected = FeatureSet(ROWS, NAMES)
    assert_equal(FeatureSet(frame["embedding"], frame["label"]), expected)
    assert_equal(FeatureSet(frame[["embedding"]], frame["label"].astype("category")), expected)
    short = pd.Series([[1.0, 2.0], [1.0]])
    with pytest.raises(InputError, match="rows of different lengths"):
        FeatureSet(short, ["a", "b"])


def test_a_mapping_from_class_to_rows_has_its_labels():
    found = FeatureSet({"wren": ROWS[:2], "robin": ROWS[2:]})
    assert found.class_names == ("wren", "robin")
    assert found.labels.tolist() == [0, 0, 1]
    np.testing.assert_array_equal(found.features, ROWS)
    with pytest.raises(InputError, match="Leave out labels"):
        FeatureSet({"wren": ROWS}, ["wren"] * 3)
    with pytest.raises(InputError, match="different numbers of features: 1, 2"):
        FeatureSet({"wren": ROWS, "robin": ROWS[:, :1]})
    with pytest.raises(InputError, match="features have no labels"):
        FeatureSet(ROWS)
    with pytest.raises(InputError, match="no rows at all"):
        FeatureSet({})


def test_bfloat16_becomes_float32():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    found = FeatureSet(ROWS.astype(ml_dtypes.bfloat16), NAMES)
    assert found.features.dtype == np.float32
    np.testing.assert_array_equal(found.features, ROWS)


@pytest.mark.torch
def test_tensors_with_gradients_and_in_bfloat16_are_read_like_arrays():
    import torch

    expected, labels = FeatureSet(ROWS, [1, 1, 0]), torch.tensor([1, 1, 0])
    tracked = torch.tensor(ROWS, requires_grad=True)
    for tensor in (tracked, tracked.bfloat16(), list(tracked), tuple(tracked.bfloat16())):
        assert_equal(FeatureSet(tensor, labels), expected)
    by_class = FeatureSet({1: tracked[:2], 0: tracked[2:]})
    np.testing.assert_array_equal(by_class.features, ROWS)


def test_rows_are_chosen_by_slice_mask_and_number(novel):
    named = FeatureSet(novel.features, novel.labels, novel.class_names, [str(i) for i in range(len(novel))])
    mask = novel.labels % 2 == 0
    for rows in (slice(10, 40, 3), mask, [3, 1, 200], np.array([-1])):
        found = named[rows]
        np.testing.assert_array_equal(found.features, novel.features[rows])
        np.testing.assert_array_equal(found.labels, novel.labels[rows])
        assert found.ids.tolist() == named.ids[rows].tolist()
        assert found.class_names == novel.class_names
    for wrong in (3, [0.5], "wren"):
        with pytest.raises(InputError, match="a slice, a mask or a list of row numbers"):
            named[wrong]
    with pytest.raises(InputError, match="the mask has 3 entries for 240 rows"):
        named[np.ones(3, dtype=bool)]
    with pytest.raises(InputError, match="features are empty"):
        named[5:5]


def test_chosen_classes_are_numbered_in_the_given_order(novel):
    found = novel.select(["novel-5", "novel-2"])
    assert (found.n_classes, found.class_names) == (2, ("novel-5", "novel-2"))
    for number, label in enumerate((5, 2)):
        np.testing.assert_array_equal(found.features[found.labels == number], novel.features[novel.labels == label])
    assert FeatureSet(np.eye(3), [7, 8, 9]).select([9, 7]).labels.tolist() == [1, 0]
    with pytest.raises(InputError, match="there is no class 'owl'. Choose from novel-0, "):
        novel.select(["owl"])


def test_pairs_and_mappings_stand_for_sets(base):
    expected = Priors.from_features(base)
    by_class = {name: base.features[base.labels == label] for label, name in enumerate(base.class_names)}
    for same in ((base.features, base.labels), by_class):
        np.testing.assert_array_equal(Priors.from_features(same).prototypes, expected.prototypes)
    assert Priors.from_features(by_class).class_names == base.class_names
    with pytest.raises(InputError, match="features are of type ndarray. Give a FeatureSet, or a pair"):
        Priors.from_features(base.features)
