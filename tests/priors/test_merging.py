"""Merging priors of which some know neither how many rows they are of, nor how those scatter."""

import numpy as np
import pytest

from p3dc import FeatureSet, P3DCClassifier, Priors, compare
from p3dc.baselines import L2N
from p3dc.errors import InputError
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones.loading import load_backbone
from tests.conftest import make_signed


def without_rows(priors, prefix=""):
    """The same priors as they would come with a backbone: a geometry, but neither counts nor moments."""
    names = [prefix + name for name in priors.class_names]
    return Priors(priors.prototypes, names, geometry=priors.geometry, clusters=priors.clusters)


@pytest.fixture(scope="module")
def head(priors):
    return without_rows(priors, "head-")


@pytest.fixture(scope="module")
def clusters(base):
    return Priors.from_unlabelled(base)


def test_the_geometry_is_that_of_the_labelled_part(tmp_path, head, clusters):
    merged = Priors.merge([clusters, head])
    merged.save(tmp_path / "merged.safetensors")
    for both in (merged, Priors.load(tmp_path / "merged.safetensors"), Priors.merge([merged])):
        assert both.counts is None
        assert str(both) == "Priors(12 base classes, 19 clusters, 24 features)"
        np.testing.assert_array_equal(both.prototypes, np.concatenate([clusters.prototypes, head.prototypes]))
        assert both.geometry.tightness == max(head.geometry.tightness, clusters.geometry.tightness)
        eye = np.eye(24)
        np.testing.assert_allclose(both.geometry.whiten(eye), head.geometry.whiten(eye), atol=1e-6)
        np.testing.assert_allclose(both.geometry.prototypes[19:], head.geometry.prototypes, atol=1e-6)
        directions = clusters.prototypes / clusters.moments.lengths[:, None]
        np.testing.assert_allclose(both.geometry.prototypes[:19], head.geometry.whiten(directions), atol=1e-6)


def test_the_first_of_several_labelled_parts_has_the_geometry(head, priors):
    other = Priors.from_features(make_signed(3, 9, 20, prefix="other"))
    assert Priors.merge([head, other]).geometry.tightness == head.geometry.tightness
    assert Priors.merge([other, head]).geometry.tightness == other.geometry.tightness


def test_clusters_serve_where_nothing_else_has_a_geometry(clusters):
    rowless = without_rows(clusters)
    other = Priors.from_unlabelled(make_signed(4, 9, 20))
    assert Priors.merge([rowless, other]).geometry.tightness == clusters.geometry.tightness


def test_without_the_lengths_of_all_there_is_no_geometry(head, clusters):
    means = Priors(np.eye(24)[:3], ["a", "b", "c"])
    for parts in ([means, clusters], [head, means]):
        merged = Priors.merge(parts)
        assert merged.geometry is None
        assert merged.reason == "they were given as means, without the rows behind them"


def test_a_class_that_is_in_several_needs_counts(head, priors):
    with pytest.raises(InputError, match="'head-base-0' is in several of the priors, and some have no counts"):
        Priors.merge([head, head])
    both = Priors.merge([priors, priors])
    assert both.counts.tolist() == [60] * 12


@pytest.mark.parametrize("n_shot", [1, 5])
def test_a_head_and_clusters_together_are_better_than_no_priors_and_than_the_worse_of_them(n_shot):
    """The head knows some classes and the clusters others, in the same few directions."""
    settings = {"noise": 3.0, "directions": np.random.default_rng(0).normal(size=(6, 24))}
    head = without_rows(Priors.from_features(make_signed(1, 10, 50, **settings)))
    clusters = Priors.from_unlabelled(make_signed(7, 20, 50, **settings))
    rows = {"head": head, "clusters": clusters, "both": Priors.merge([head, clusters])}
    methods = {name: P3DCClassifier(priors) for name, priors in rows.items()} | {"L2N": L2N()}
    found = compare(methods, make_signed(2, 20, 50, **settings), n_shot=n_shot, n_tasks=500)
    gain = found.difference("both", "L2N")
    assert gain.mean > gain.interval
    worse = min(("head", "clusters"), key=lambda name: found.scores[name].mean)
    gain = found.difference("both", worse)
    assert gain.mean > -gain.interval


@pytest.mark.data
def test_imagenet_classes_gain_by_clusters_of_birds_and_lose_nothing_with_more_shots(data_folder):
    folder = data_folder / "cub-lite0"
    head, clusters = backbone_priors(load_backbone()), Priors.from_unlabelled(FeatureSet.load(folder / "base.npz"))
    methods = {"head": P3DCClassifier(head), "both": P3DCClassifier(Priors.merge([head, clusters]))}
    validation = FeatureSet.load(folder / "validation.npz")
    one, five = (
        compare(methods, validation, n_shot=n_shot, n_tasks=200).difference("both", "head") for n_shot in (1, 5)
    )
    assert one.mean > one.interval  # +1.1 points when written
    assert five.mean > -five.interval  # −0.1
