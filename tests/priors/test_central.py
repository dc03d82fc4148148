"""The most central rows of clusters."""

import pickle

import numpy as np
import pytest

from p3dc import FeatureSet, P3DCClassifier, Priors
from p3dc.errors import InputError
from p3dc.io.safetensors import read_arrays, write_arrays
from p3dc.method import l2_normalize
from p3dc.priors.central import N_CENTRAL, CentralRow
from p3dc.priors.unlabelled import learn_centres, sum_clusters


@pytest.fixture(scope="module")
def keyed(base):
    """The rows of the base classes, each with an id."""
    return FeatureSet(base.features, base.labels, base.class_names, [f"row {n}" for n in range(len(base))])


@pytest.fixture(scope="module")
def pictured(keyed):
    """Clusters, each of whose central rows has a thumbnail but the last."""
    found = Priors.from_unlabelled(keyed)
    central = [[CentralRow(row.key, row.key.encode()) for row in rows] for rows in found.central]
    central[-1][-1] = CentralRow(central[-1][-1].key)
    return found.with_central(central)


def test_they_are_the_rows_nearest_to_the_centre_of_their_cluster(keyed):
    found = Priors.from_unlabelled(keyed)
    centres, _ = learn_centres([keyed.features])
    cosines = l2_normalize(keyed.features.astype(float)) @ centres.T.astype(float)
    nearest = cosines.argmax(axis=1)
    for cluster, rows in enumerate(found.central):
        own = np.flatnonzero(nearest == cluster)
        expected = own[np.argsort(-cosines[own, cluster], kind="stable")][:N_CENTRAL]
        assert [row.key for row in rows] == [f"row {n}" for n in expected]
        assert not any(row.thumbnail for row in rows)
    assert {len(rows) for rows in found.central} == {N_CENTRAL}


def test_rows_without_keys_are_named_by_their_numbers(base, keyed):
    expected = [[row.key.removeprefix("row ") for row in rows] for rows in Priors.from_unlabelled(keyed).central]
    shifted = np.insert(base.features, [0, 100], 0, axis=0)  # rows of zeros count, though they are in no cluster
    for rows, first in ((base.features, lambda n: n), (shifted, lambda n: n + 1 + (n >= 100))):
        found = Priors.from_unlabelled(lambda rows=rows: np.array_split(rows, 5))
        numbers = [[str(first(int(key))) for key in keys] for keys in expected]
        assert [[row.key for row in own] for own in found.central] == numbers


def test_sums_of_parts_keep_the_most_central_of_all(keyed):
    centres, _ = learn_centres([keyed.features])
    whole = sum_clusters([(keyed.features, keyed.ids)], centres)
    total = sum_clusters([(keyed.features[:100], keyed.ids[:100])], centres)
    total.join(sum_clusters([(keyed.features[100:], keyed.ids[100:])], centres))
    assert {label: [key for _, key in rows] for label, rows in total.central.items()} == {
        label: [key for _, key in rows] for label, rows in whole.central.items()
    }


def test_keys_must_be_as_many_as_rows(base):
    with pytest.raises(InputError, match="there are 360 rows and 2 keys"):
        Priors.from_unlabelled(lambda: [(base.features, ["a", "b"])])
    with pytest.raises(InputError, match="central has 1 entries for 2 prototypes"):
        Priors(np.eye(2), central=[[]])


def test_saving_merging_and_pickling_keep_them(tmp_path, priors, pictured):
    path = tmp_path / "priors.safetensors"
    pictured.save(path)
    merged = Priors.merge([priors, Priors.load(path)])
    merged.save(tmp_path / "merged.safetensors")
    assert merged.central == ((),) * len(priors) + pictured.central
    assert Priors.load(tmp_path / "merged.safetensors").central == merged.central
    assert pickle.loads(pickle.dumps(pictured)).central == pictured.central


def test_the_file_of_a_classifier_keeps_them(tmp_path, task, pictured):
    P3DCClassifier(pictured).fit(*task[:2]).save(tmp_path / "model.safetensors")
    assert P3DCClassifier.load(tmp_path / "model.safetensors").priors.central == pictured.central


@pytest.mark.parametrize(
    "damage",
    [
        lambda arrays, facts: facts.update(central=[["a"]]),
        lambda arrays, facts: facts.update(central=5),
        lambda arrays, facts: facts["central"].__setitem__(0, [5]),
        lambda arrays, facts: facts["central"].pop(),
        lambda arrays, facts: facts["central"][0].append("more"),
        lambda arrays, facts: arrays.pop("central_sizes"),
        lambda arrays, facts: arrays.update(central_sizes=-arrays["central_sizes"]),
        lambda arrays, facts: arrays.update(central_thumbnails=arrays["central_thumbnails"][1:]),
        lambda arrays, facts: arrays.update(central_thumbnails=arrays["central_thumbnails"].astype(float)),
    ],
)
def test_what_does_not_fit_together_is_refused(tmp_path, pictured, damage):
    path = tmp_path / "priors.safetensors"
    pictured.save(path)
    names = {"clusters", "counts", "lengths", "axes", "gains", "cluster_scatter", "central_thumbnails", "central_sizes"}
    arrays, facts = read_arrays(
        path, "priors", 2, required=["prototypes", *names], facts=["class_names", "geometry", "central"]
    )
    damage(arrays, facts)
    write_arrays(path, "priors", 2, arrays, facts)
    with pytest.raises(InputError, match=r"priors\.safetensors: .*damaged"):
        Priors.load(path)
