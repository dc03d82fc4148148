import pickle

import numpy as np
import pytest

from p3dc import FeatureSet
from p3dc.errors import InputError
from p3dc.reproduce.datasets import load_data_set


def write_plk(path, features):
    by_class = {}
    for row, label in zip(features.features, features.labels, strict=True):
        by_class.setdefault(features.class_names[label], []).append(row)
    path.write_bytes(pickle.dumps(by_class))


def test_sets_are_found_whatever_their_format(folder, base, validation):
    data = load_data_set(folder)
    assert data.name == "birds"
    assert not data.held_out
    assert data.paper_name is None
    np.testing.assert_array_equal(data.validation.features, validation.features)
    assert data.selection_base is data.base
    assert data.base.class_names == base.class_names


def test_the_names_of_the_s2m2_release_are_found(tmp_path, base, validation, novel):
    for name, features in (("base", base), ("val", validation), ("novel", novel)):
        write_plk(tmp_path / f"{name}_features.plk", features)
    assert load_data_set(tmp_path).validation.class_names == validation.class_names


def test_without_validation_base_classes_are_held_out_and_novel_ones_never_seen(folder, base):
    (folder / "validation.parquet").unlink()
    data = load_data_set(folder)
    assert data.held_out
    assert set(data.validation.class_names) == {"base-0", "base-3", "base-6", "base-8", "base-11"}
    assert set(data.selection_priors.class_names) == set(base.class_names) - set(data.validation.class_names)
    assert len(data.priors) == len(base.class_names)


def test_the_papers_data_sets_are_known_by_their_classes(tmp_path):
    rng = np.random.default_rng(0)
    for name, n_classes in (("base", 64), ("novel", 20)):
        FeatureSet(rng.random((n_classes, 3)), [f"{name}{i}" for i in range(n_classes)]).save(tmp_path / f"{name}.npz")
    assert load_data_set(tmp_path).paper_name == "miniImageNet"


def test_missing_sets_and_common_classes_are_refused(folder, novel, tmp_path):
    novel.save(folder / "validation.npz")
    with pytest.raises(InputError, match="validation and novel share 8 classes"):
        load_data_set(folder)
    (folder / "novel.npz").unlink()
    with pytest.raises(InputError, match="has no novel features. Name the file one of novel, novel_features"):
        load_data_set(folder)
    with pytest.raises(InputError, match="is not a folder"):
        load_data_set(tmp_path / "gone")


def test_too_few_base_classes_cannot_stand_in(tmp_path, novel):
    FeatureSet(np.eye(5) + 0.1, list("abcde")).save(tmp_path / "base.npz")
    novel.save(tmp_path / "novel.npz")
    with pytest.raises(InputError, match="5 base classes are too few to hold some out"):
        load_data_set(tmp_path)
