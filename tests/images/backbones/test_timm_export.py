"""Networks of timm, exported with random weights. Run with the timm extra: ``pytest -m torch``."""

import importlib.util

import numpy as np
import pytest
from PIL import Image

from p3dc.errors import InputError
from p3dc.images.backbones.loading import load_backbone

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="needs the timm extra"),
    pytest.mark.filterwarnings("ignore"),
]


def test_an_exported_network_gives_photos_the_features_of_torch(tmp_path, data_folder):
    import torch

    from p3dc.images.backbones.timm_export import _create, _features, export_timm

    assert export_timm("timm:test_vit", tmp_path / "net", pretrained=False) >= 0.9999
    backbone = load_backbone(tmp_path / "net")
    torch.manual_seed(0)
    network = _create("test_vit", pretrained=False)
    photos = sorted((data_folder / "photos").rglob("*.jpg"))[:6]
    pixels = np.stack([backbone.preprocessing.prepare(Image.open(path).convert("RGB")) for path in photos])
    one, two = backbone.embed(pixels), _features(network, pixels)
    cosines = np.vecdot(one, two) / np.linalg.norm(one, axis=1) / np.linalg.norm(two, axis=1)
    assert cosines.min() >= 0.9999
    assert backbone.head().rows.shape == (network.num_classes, backbone.n_features)


def test_a_network_without_its_head_has_the_same_features(tmp_path):
    from p3dc.images.backbones.timm_export import export_timm

    for name, head in (("with", True), ("without", False)):
        export_timm("timm:test_resnet", tmp_path / name, pretrained=False, head=head)
    with_head, without = load_backbone(tmp_path / "with"), load_backbone(tmp_path / "without")
    assert without.head() is None
    pixels = np.random.default_rng(0).normal(size=(3, *without.preprocessing.shape)).astype(np.float32)
    np.testing.assert_allclose(with_head.embed(pixels), without.embed(pixels), rtol=1e-3, atol=1e-4)


def test_mistakes_are_refused_and_leave_nothing_behind(tmp_path):
    from p3dc.images.backbones.timm_export import export_timm

    with pytest.raises(InputError, match="timm knows no network 'no_such_network'"):
        export_timm("timm:no_such_network", tmp_path / "net")
    with pytest.raises(InputError, match="Write timm:NAME"):
        export_timm("resnet18", tmp_path / "net")
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="is there already"):
        export_timm("timm:test_vit", tmp_path / "there", pretrained=False)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
