"""The classes that the default backbone was trained on."""

from importlib.resources import as_file, files

import numpy as np
import pytest

from p3dc import P3DCClassifier
from p3dc.adaptive.space import WhitenedSpace
from p3dc.images.backbone_priors import FAR, NUMBERS, VERSION, backbone_priors
from p3dc.images.backbones import efficientnet_lite
from p3dc.images.backbones.onnx_network import OnnxBackbone
from p3dc.io.safetensors import read_arrays
from p3dc.method import l2_normalize
from tests.images.backbones.test_onnx_network import HOW, model
from tests.images.test_extraction import Colours


@pytest.fixture(scope="module")
def known(lite0_backbone):
    return backbone_priors(lite0_backbone)


@pytest.fixture(scope="module")
def learned():
    with as_file(files("p3dc") / "data" / "lite0-geometry.safetensors") as path:
        return read_arrays(path, "geometry", VERSION, required=["axes", "gains", "mean"], facts=NUMBERS)


@pytest.fixture(scope="module")
def rows():
    return efficientnet_lite.class_rows().astype(np.float64)


def test_there_is_a_class_for_each_of_imagenet(known):
    assert len(known) == 1000
    assert known.prototypes.shape == (1000, 1280)
    assert known.geometry.prototypes.shape == (1000, 1280)
    assert np.isfinite(known.prototypes).all()
    assert np.isfinite(known.geometry.prototypes).all()
    assert known.reason == ""


def test_names_stand_in_the_order_of_imagenet(known):
    places = {0: "tench", 1: "goldfish", 11: "goldfinch", 94: "hummingbird", 207: "golden retriever", 985: "daisy"}
    assert {place: known.class_names[place] for place in places} == places
    assert len(set(known.class_names)) == 1000
    assert all(name == name.strip() and name for name in known.class_names)


def test_the_geometry_is_one(known):
    geometry = known.geometry
    axes = geometry.axes
    assert axes.shape == (len(geometry.gains), 1280)
    np.testing.assert_allclose(axes @ axes.T, np.eye(len(axes)), atol=1e-5)
    assert (geometry.gains > 0).all()
    assert 0 < geometry.tightness < 1
    assert 0 < geometry.spread < 1


def test_prototypes_lie_where_the_rows_of_the_classifier_point(known, learned, rows):
    arrays, facts = learned
    away = known.prototypes - arrays["mean"].astype(np.float64)
    ways = rows - rows.mean(axis=0)
    np.testing.assert_allclose(np.linalg.norm(away, axis=1), FAR * facts["distance"], rtol=1e-9)
    cosines = np.vecdot(away, ways) / np.linalg.norm(away, axis=1) / np.linalg.norm(ways, axis=1)
    np.testing.assert_allclose(cosines, 1, rtol=1e-9)
    np.testing.assert_allclose(known.geometry.prototypes, known.geometry.whiten(known.prototypes), rtol=1e-9)


def test_what_lies_in_the_direction_of_a_class_is_nearest_to_it(known, learned, rows):
    arrays, facts = learned
    seen = arrays["mean"].astype(np.float64) + facts["distance"] * l2_normalize(rows - rows.mean(axis=0))
    geometry = known.geometry
    prepared, prototypes = (
        WhitenedSpace(None, geometry.mean).centred(whitened)
        for whitened in (geometry.whiten(seen), geometry.prototypes)
    )
    nearest = (prepared @ prototypes.T).argmax(axis=1)
    np.testing.assert_array_equal(nearest, np.arange(1000))


def test_classes_that_the_backbone_knows_are_pulled_by_their_own_names(known, learned, rows):
    arrays, facts = learned
    names = ["goldfinch", "daisy", "golden retriever"]
    places = [known.class_names.index(name) for name in names]
    ways = l2_normalize(rows - rows.mean(axis=0))[places]
    seen = arrays["mean"] + facts["distance"] * ways
    report = P3DCClassifier(known).fit(seen, names).explain().to_pylist()
    first = {row["label"]: row["prior"] for row in reversed(report) if row["level"] == "sample"}
    assert first == {name: name for name in names}


def test_of_other_backbones_nothing_is_known():
    assert backbone_priors(Colours()) is None
    assert backbone_priors(OnnxBackbone(model(), HOW, name="tiny")) is None


@pytest.mark.data
def test_names_are_those_that_came_with_the_weights(known, data_folder):
    given = (data_folder / "imagenet-classes.txt").read_text().splitlines()
    assert known.class_names == tuple(given)
