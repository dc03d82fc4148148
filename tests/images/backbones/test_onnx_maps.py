"""Feature maps from before the pooling of ONNX networks."""

import numpy as np
import pytest

from p3dc.errors import InputError
from p3dc.images.backbones.onnx_network import OnnxBackbone
from p3dc.images.preprocessing import Preprocessing
from tests.images.backbones.test_onnx_network import HOW, model
from tests.images.test_extraction import Colours

RELU = ("Relu", ["pixels"], ["maps"], {})
LAST = Preprocessing(short_side=8, crop=6, mean=(0, 0, 0), scale=(1, 1, 1), layout="NHWC")


@pytest.mark.parametrize(
    "pooling",
    [
        [("GlobalAveragePool", ["maps"], ["features"], {})],
        [("GlobalAveragePool", ["maps"], ["pooled"], {}), ("Flatten", ["pooled"], ["features"], {})],
        [("ReduceMean", ["maps"], ["features"], {"axes": [2, 3], "keepdims": 0})],
    ],
)
def test_maps_are_what_the_network_averages(rng, pooling):
    backbone = OnnxBackbone(model([RELU, *pooling]), HOW)
    pixels = rng.normal(size=(11, 3, 6, 6)).astype(np.float32)
    maps = backbone.embed_maps(pixels)
    assert maps.dtype == np.float32
    np.testing.assert_array_equal(maps, np.maximum(pixels, 0).transpose(0, 2, 3, 1).reshape(11, 36, 3))
    np.testing.assert_allclose(maps.mean(axis=1), backbone.embed(pixels), rtol=1e-5)


def test_colours_may_come_last(rng):
    nodes = [RELU, ("ReduceMean", ["maps"], ["features"], {"axes": [1, 2], "keepdims": 0})]
    backbone = OnnxBackbone(model(nodes, shape=["n", 6, 6, 3]), LAST)
    pixels = rng.normal(size=(2, 6, 6, 3)).astype(np.float32)
    np.testing.assert_array_equal(backbone.embed_maps(pixels), np.maximum(pixels, 0).reshape(2, 36, 3))


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ([("Flatten", ["pixels"], ["features"], {})], "ends in nothing, not in an average over positions"),
        ([RELU, ("GlobalMaxPool", ["maps"], ["features"], {})], "ends in GlobalMaxPool"),
        ([RELU, ("ReduceMean", ["maps"], ["features"], {"axes": [1, 3], "keepdims": 0})], "no mean over positions"),
    ],
)
def test_networks_without_maps_are_refused_in_a_sentence(nodes, sentence):
    backbone = OnnxBackbone(model(nodes), HOW)
    with pytest.raises(InputError, match=sentence):
        backbone.embed_maps(np.ones((1, 3, 6, 6)))


def test_a_file_that_changed_is_refused(tmp_path):
    path = tmp_path / "tiny.onnx"
    path.write_bytes(model([RELU, ("GlobalAveragePool", ["maps"], ["features"], {})]))
    backbone = OnnxBackbone(path, HOW)
    path.write_bytes(model())
    with pytest.raises(InputError, match="tiny.onnx has changed since it was loaded"):
        backbone.embed_maps(np.ones((1, 3, 6, 6)))


def test_other_backbones_have_none():
    with pytest.raises(InputError, match="colours gives no feature maps"):
        Colours().embed_maps(np.ones((1, 3, 2, 2)))


def test_the_default_network_has_seven_times_seven_positions(lite0_backbone, rng):
    pixels = rng.normal(size=(1, 3, 224, 224)).astype(np.float32)
    maps = lite0_backbone.embed_maps(pixels)
    assert maps.shape == (1, 49, 1280)
    np.testing.assert_allclose(maps.mean(axis=1), lite0_backbone.embed(pixels), atol=1e-5)
