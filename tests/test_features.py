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

from p3dc import FeatureSet
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
    with pytest.raises(InputError, match=r"is damaged.*allow_pickle"):
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
