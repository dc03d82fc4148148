import copy
import json
import os
import pickle
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3dc import FeatureSet, Priors
from p3dc.errors import InputError
from p3dc.io.safetensors import write_arrays
from p3dc.priors.prototypes import as_priors


def assert_equal(one, two):
    assert one.class_names == two.class_names
    np.testing.assert_allclose(one.prototypes, two.prototypes, rtol=1e-12)
    np.testing.assert_array_equal(one.counts, two.counts)


def test_a_prototype_is_the_mean_of_its_class(base):
    priors = Priors.from_features(base)
    assert priors.class_names == base.class_names
    for c, prototype in enumerate(priors.prototypes):
        rows = base.features[base.labels == c].astype(float)
        np.testing.assert_allclose(prototype, rows.mean(axis=0), rtol=1e-13)
    assert priors.counts.tolist() == [30] * 12


def test_float16_features_are_averaged_in_float64():
    features = FeatureSet(np.full((70_000, 1), 1.001, dtype=np.float16), np.zeros(70_000))
    assert Priors.from_features(features).prototypes[0, 0] == np.float64(np.float16(1.001))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 6))
def test_stream_and_merged_parts_give_the_priors_of_the_whole(seed, n_parts):
    rng = np.random.default_rng(seed)
    rows, labels = rng.gamma(1.0, 1.0, (50, 3)), rng.choice(list("dbca"), 50)
    whole = Priors.from_features(FeatureSet(rows, labels))
    parts = np.array_split(rng.permutation(50), n_parts)
    batches = [(rows[part], labels[part]) for part in parts]
    assert_equal(Priors.from_batches(iter(batches)), whole)
    merged = Priors.merge(Priors.from_features(FeatureSet(*batch)) for batch in batches)
    order = np.argsort(merged.class_names)
    assert [merged.class_names[i] for i in order] == list(whole.class_names)
    np.testing.assert_allclose(merged.prototypes[order], whole.prototypes, rtol=1e-12)


def test_memory_of_a_stream_does_not_depend_on_its_length():
    def stream(n_batches):
        rng = np.random.default_rng(0)
        for _ in range(n_batches):
            yield rng.random((200, 32)) + 0.1, rng.integers(0, 5, 200)

    peaks = []
    for n_batches in (5, 100):
        tracemalloc.start()
        Priors.from_batches(stream(n_batches))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_integer_labels_are_ordered_as_numbers():
    assert Priors.from_batches([([[1.0], [2.0]], [10, 9])]).class_names == ("9", "10")


def test_classes_without_rows_have_no_prototype():
    assert Priors.from_features(FeatureSet([[1.0]], [1], ["a", "b", "c"])).class_names == ("b",)


@pytest.mark.parametrize("counts", [None, [3, 1]])
def test_what_is_saved_is_what_is_loaded(tmp_path, counts):
    priors = Priors([[1.0, 2.0], [0.1, 0.2]], ["Grüne Eule", "lynx"], counts)
    priors.save(tmp_path / "priors.safetensors")
    found = Priors.load(tmp_path / "priors.safetensors")
    assert found.class_names == priors.class_names
    np.testing.assert_array_equal(found.prototypes, priors.prototypes)
    assert (found.counts is None) if counts is None else (found.counts.tolist() == counts)


def test_priors_cannot_be_changed_so_copies_are_free(priors):
    assert copy.deepcopy(priors) is priors
    with pytest.raises(ValueError, match="read-only"):
        priors.prototypes[0, 0] = 1
    with pytest.raises(AttributeError):
        priors.class_names = ()


def test_the_mean_is_that_of_all_base_features(base, priors):
    np.testing.assert_allclose(priors.mean, base.features.mean(axis=0, dtype=float), rtol=1e-6)
    uneven = Priors([[0.0, 1.0], [4.0, 1.0]], counts=[3, 1])
    np.testing.assert_allclose(uneven.mean, [1.0, 1.0])
    np.testing.assert_allclose(Priors(uneven.prototypes).mean, [2.0, 1.0])


def test_an_array_serves_as_priors(priors):
    assert as_priors(None) is None
    assert as_priors(priors) is priors
    assert as_priors([[1.0, 2.0]]).class_names == ("0",)


def test_priors_out_of_a_pickle_cannot_be_changed_either(priors):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        found = pickle.loads(pickle.dumps(priors, protocol))
        assert_equal(found, priors)
        for array in (found.prototypes, found.counts):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 1


def test_empty_batches_pass():
    batches = [(np.ones((0, 2)), []), ([[1.0, 2.0]], ["a"]), (np.ones((0, 2)), np.array([], dtype=int)), ([], [])]
    assert Priors.from_batches(batches).class_names == ("a",)
    with pytest.raises(InputError, match="no rows to average"):
        Priors.from_batches([([], [])])


def test_where_some_labels_are_text_all_are():
    batches = [([[1.0]], [10]), ([[3.0]], ["10"]), ([[5.0]], ["9"]), ([[7.0]], [9])]
    priors = Priors.from_batches(batches)
    assert priors.class_names == ("10", "9")
    assert priors.prototypes.tolist() == [[2.0], [6.0]]
    assert priors.counts.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (["a", None], "row 1 has None for its label"),
        ([1.0, np.nan], "row 1 has nan for its label"),
        (["a", 1], "row 1 has 1 for its label, but row 0 has 'a'"),
        ([[1], [2]], r"labels have shape \(2, 1\)"),
    ],
)
def test_batches_with_labels_that_say_nothing_are_refused(labels, sentence):
    with pytest.raises(InputError, match=sentence):
        Priors.from_batches([(np.ones((2, 3)), labels)])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prototypes": [[1.0]], "class_names": 5}, "class_names is 5. Give a list of names"),
        ({"prototypes": [[1.0]], "class_names": "a"}, "class_names is 'a'. Give a list of names"),
        ({"prototypes": [[1.0]], "class_names": [None]}, "class_names has None at place 0"),
        ({"prototypes": [[1.0]], "class_names": [b"a"]}, "class_names has b'a' at place 0"),
        ({"prototypes": [[1.0, np.nan]]}, "prototypes row 0 has NaN"),
        ({"prototypes": [[1.0, 1.0], [0.0, 0.0]]}, "prototypes row 1 is all zeros"),
        ({"prototypes": np.ones((0, 3))}, "prototypes are empty"),
        ({"prototypes": [1.0]}, "must have two axes"),
        ({"prototypes": [[1.0]], "class_names": ["a", "b"]}, "2 names for 1 classes"),
        ({"prototypes": [[1.0], [2.0]], "class_names": ["a", "a"]}, "'a' twice"),
        ({"prototypes": [[1.0]], "counts": [0]}, "whole numbers, 1 or more"),
        ({"prototypes": [[1.0]], "counts": [1.5]}, "whole numbers, 1 or more"),
        ({"prototypes": [[1.0]], "counts": [1, 2]}, "counts must be 1 whole numbers"),
    ],
)
def test_bad_priors_are_refused_in_one_sentence(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        Priors(**arguments)


def test_streams_that_do_not_fit_together_are_refused():
    with pytest.raises(InputError, match="rows of 2 features and rows of 3"):
        Priors.from_batches([([[1.0, 2.0]], ["a"]), ([[1.0, 2.0, 3.0]], ["b"])])
    with pytest.raises(InputError, match="no rows to average"):
        Priors.from_batches([])
    with pytest.raises(InputError, match="Give one label a row"):
        Priors.from_batches([([[1.0, 2.0]], ["a", "b"])])
    with pytest.raises(InputError, match="the class 'a' is in several of the priors, and some have no counts"):
        Priors.merge([Priors([[1.0]], ["a"], counts=[2]), Priors([[1.0]], ["a"])])


def test_damaged_and_foreign_files_are_refused(tmp_path, priors):
    path = tmp_path / "priors.safetensors"
    with pytest.raises(InputError, match="is not a file"):
        Priors.load(path)
    priors.save(path)
    size = path.stat().st_size
    for length in (size - 1, size // 2, 9, 0):
        os.truncate(path, length)
        with pytest.raises(InputError, match="is damaged or is not a safetensors file"):
            Priors.load(path)
    facts = {"class_names": ["a"], "geometry": "they are means"}
    for kind, version, arrays, extra, sentence in (
        ("classifier", 2, {}, {}, "is of format 'p3dc-classifier', not 'p3dc-priors'"),
        ("priors", 1, {}, {}, "has version 1 of p3dc-priors, but this p3dc reads version 2.*or write it again"),
        ("priors", 3, {}, {}, "has version 3 of p3dc-priors, but this p3dc reads version 2"),
        ("priors", 2, {"colour": np.ones(1)}, {}, "has an unknown array: colour"),
        ("priors", 2, {}, {"mood": 1}, "has an unknown entry: mood"),
    ):
        write_arrays(path, kind, version, {"prototypes": np.ones((1, 2))} | arrays, facts | extra)
        with pytest.raises(InputError, match=sentence):
            Priors.load(path)
    write_arrays(path, "priors", 2, {"counts": np.ones(1)}, facts)
    with pytest.raises(InputError, match="lacks the array prototypes"):
        Priors.load(path)
    write_arrays(path, "priors", 2, {"prototypes": np.ones((1, 2))}, {"class_names": ["a"]})
    with pytest.raises(InputError, match="lacks the entry geometry"):
        Priors.load(path)
    write_arrays(path, "priors", 2, {"prototypes": np.ones((1, 2))}, [])
    with pytest.raises(InputError, match="no table of facts"):
        Priors.load(path)


def test_a_file_of_the_first_version_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "old.safetensors"
    write_arrays(path, "priors", 1, {"prototypes": np.ones((1, 2)), "counts": np.ones(1, int)}, {"class_names": ["a"]})
    with pytest.raises(InputError, match="has version 1 of p3dc-priors, but this p3dc reads version 2") as refused:
        Priors.load(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("arrays", "names", "sentence"),
    [
        ({"prototypes": np.ones((1, 2))}, 5, "class_names is 5"),
        ({"prototypes": np.ones((1, 2))}, [None], "class_names has None at place 0"),
        ({"prototypes": np.ones((1, 2))}, ["a", "b"], "2 names for 1 classes"),
        ({"prototypes": np.ones(2)}, ["a"], "must have two axes"),
        ({"prototypes": np.ones((1, 2), dtype=np.complex64)}, ["a"], "real numbers"),
        ({"prototypes": np.ones((1, 2)), "counts": np.ones((1, 1), dtype=int)}, ["a"], "counts must be"),
        ({"prototypes": np.full((1, 2), np.nan)}, ["a"], "has NaN"),
    ],
)
def test_files_of_priors_that_make_no_sense_are_named(tmp_path, arrays, names, sentence):
    path = tmp_path / "priors.safetensors"
    write_arrays(path, "priors", 2, arrays, {"class_names": names, "geometry": "they are means"})
    with pytest.raises(InputError, match=rf"priors\.safetensors: .*{sentence}"):
        Priors.load(path)


def test_prototypes_in_bfloat16_are_refused(tmp_path):
    entry = {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]}
    facts = {
        "format": "p3dc-priors",
        "version": "2",
        "facts": json.dumps({"class_names": ["a"], "geometry": "they are means"}),
    }
    header = json.dumps({"__metadata__": facts, "prototypes": entry}).encode()
    (tmp_path / "priors.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\x80\x3f\x80\x3f")
    with pytest.raises(InputError, match="is damaged or is not a safetensors file"):
        Priors.load(tmp_path / "priors.safetensors")


def test_names_of_half_characters_are_refused_on_save(tmp_path):
    with pytest.raises(InputError, match="half a character"):
        Priors([[1.0]], ["\ud800"]).save(tmp_path / "priors.safetensors")
    assert list(tmp_path.iterdir()) == []
