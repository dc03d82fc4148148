"""Lite0 in 8-bit integers: its arithmetic, and how near it stays to the network in floats."""

import io
import zipfile
from importlib.resources import files

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

from p3dc import ImageClassifier
from p3dc.errors import InputError
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones import efficientnet_lite as lites
from p3dc.images.backbones.loading import load_backbone
from p3dc.images.backbones.network_writer import Int8Writer, NetworkWriter
from p3dc.io.torch_file import read_tensors

NAME = "efficientnet-lite0-int8"


@pytest.fixture(scope="module")
def int8_backbone(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return load_backbone(NAME)


def run(writer, weight, bias, pixels, *, relu6):
    """A network of one convolution of single pixels, and its average."""
    made = writer.convolve(writer.begin(), "layer", weight, bias, relu6=relu6, kernel_shape=[1, 1])
    content = writer.end("tiny", made, pixels.shape[-1], len(weight))
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, {"pixels": pixels})[0]


@pytest.mark.parametrize("relu6", [True, False])
def test_a_layer_is_integer_arithmetic(rng, relu6):
    weight, bias = rng.normal(size=(5, 3, 1, 1)).astype(np.float32), rng.normal(size=5).astype(np.float32)
    weight[4] = 0
    pixels = rng.uniform(-1.5, 1.5, (40, 3, 1, 1)).astype(np.float32)  # beyond the range as well
    low, high = (0.0, 6.0) if relu6 else (-5.0, 4.0)
    ranges = {"pixels": (-1.0, 1.0), "layer.relu6" if relu6 else "layer": (low, high)}
    found = run(Int8Writer(ranges), weight, bias, pixels, relu6=relu6)

    step = 2 / 255
    zero = np.rint(1 / step)
    pixel_steps = np.clip(np.rint(pixels[:, :, 0, 0] / step) + zero, 0, 255) - zero
    weight_step = np.abs(weight).max(axis=(1, 2, 3)) / 127
    weight_step[4] = 1 / 127
    weight_steps = np.rint(weight[:, :, 0, 0] / weight_step[:, None])
    sums = pixel_steps @ weight_steps.T + np.rint(bias / (step * weight_step))
    expected = np.clip(sums * step * weight_step, low, high)
    np.testing.assert_allclose(found, expected, atol=(high - low) / 255)
    assert found[:, :4].std() > 0.2
    plain = run(NetworkWriter(), weight, bias, np.clip(pixels, -1, 1), relu6=relu6)
    np.testing.assert_allclose(found, np.clip(plain, low, high), atol=0.15)


def test_the_graph_is_valid_and_the_same_each_time():
    tensors = read_tensors(lites.weights_path())
    graph = lites.build(tensors, lites.LITE0_INT8)
    onnx.checker.check_model(onnx.load_from_string(graph), full_check=True)
    assert lites.build(tensors, lites.LITE0_INT8) == graph
    assert len(graph) < len(lites.build(tensors)) / 3


def cosines(one, two):
    return np.vecdot(one, two) / np.linalg.norm(one, axis=1) / np.linalg.norm(two, axis=1)


def test_drawings_have_nearly_the_features_of_the_floats(int8_backbone, lite0_backbone):
    with zipfile.ZipFile(io.BytesIO((files("p3dc") / "data" / "example-photos.zip").read_bytes())) as drawings:
        names = [name for name in drawings.namelist() if name.endswith(".webp")][::4]
        images = [Image.open(io.BytesIO(drawings.read(name))).convert("RGB") for name in names]
    pixels = np.stack([lite0_backbone.preprocessing.prepare(image) for image in images])
    found = int8_backbone.embed(pixels)
    near = cosines(found, lite0_backbone.embed(pixels))
    assert near.mean() > 0.97
    assert near.max() < 0.99999  # it is another network
    assert found.min() >= 0
    assert found.max() <= 6
    np.testing.assert_allclose(int8_backbone.embed(pixels[1:2]), found[1:2], atol=1e-5)
    np.testing.assert_array_equal(load_backbone(NAME).embed(pixels), found)
    np.testing.assert_allclose(int8_backbone.embed_maps(pixels[:2]).mean(axis=1), found[:2], atol=1e-5)


@pytest.mark.data
def test_photos_have_nearly_the_features_of_the_floats(data_folder, int8_backbone):
    with np.load(data_folder / "photos-lite0.npz") as reference:
        expected, paths = reference["features"], reference["paths"]
    images = (Image.open(data_folder / "photos" / path).convert("RGB") for path in paths)
    near = cosines(int8_backbone.embed(np.stack([*map(int8_backbone.preprocessing.prepare, images)])), expected)
    assert near.mean() > 0.99
    assert near.min() > 0.95


def test_it_has_the_classes_of_the_floats_and_is_another_network(int8_backbone, lite0_backbone, tmp_path, photos):
    assert int8_backbone.name == NAME
    assert int8_backbone.digest != lite0_backbone.digest
    np.testing.assert_array_equal(backbone_priors(int8_backbone).prototypes, backbone_priors(lite0_backbone).prototypes)
    ImageClassifier.from_folder(photos, backbone=int8_backbone).save(tmp_path / "model.safetensors")
    assert ImageClassifier.load(tmp_path / "model.safetensors").backbone.digest == int8_backbone.digest
    with pytest.raises(InputError, match=f"was made with the backbone {NAME}"):
        ImageClassifier.load(tmp_path / "model.safetensors", lite0_backbone)


def test_other_ranges_are_kept_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, ranges = lites.load_graph(lites.LITE0_INT8), lites._ranges()
    monkeypatch.setattr(lites, "_ranges", lambda: ranges.replace(b"1.0", b"0.9", 1))
    assert lites.load_graph(lites.LITE0_INT8) != first
    assert len([*(tmp_path / "p3dc").iterdir()]) == 2


def test_it_runs_on_the_processor_alone():
    with pytest.raises(InputError, match=r"int8 runs on the processor alone.* or use efficientnet-lite0.$"):
        load_backbone(NAME, device="openvino")
