"""Networks of torch. Run with the torch extra: ``pytest -m torch``."""

import subprocess
import sys

import numpy as np
import pytest

from p3dc.errors import InputError
from p3dc.images.backbones import efficientnet_lite
from p3dc.images.preprocessing import Preprocessing
from p3dc.io.torch_file import read_tensors

pytestmark = pytest.mark.torch

HOW = Preprocessing(short_side=12, crop=10, mean=(0, 0, 0), scale=(255, 255, 255))


@pytest.fixture(scope="module")
def network():
    import torch

    from p3dc.images.backbones.torch_network import WideResNet

    torch.manual_seed(0)
    return WideResNet()


@pytest.fixture(scope="module")
def checkpoint(network):
    """What S2M2 saves: weights behind a wrapper, and a classifier."""
    import torch

    state = {f"module.{name}": value for name, value in network.state_dict().items()}
    more = {"module.linear.L.weight_g": torch.ones(200, 1), "module.linear.L.weight_v": torch.ones(200, 640)}
    return {"epoch": 3, "state": state | more}


def small():
    import torch

    from p3dc.images.backbones.torch_network import WideResNet

    torch.manual_seed(0)
    return WideResNet(10, 1)


def test_a_module_gives_a_row_for_each_image(rng):
    import torch

    from p3dc.images.backbones.torch_network import TorchBackbone

    module = small().train()
    backbone = TorchBackbone(module, HOW, name="small")
    assert not module.training
    assert backbone.n_features == 64
    pixels = rng.random((19, *HOW.shape), dtype=np.float32)
    features = backbone.embed(pixels)
    assert features.shape == (19, 64)
    assert features.dtype == np.float32
    assert features.min() >= 0
    with torch.no_grad():
        np.testing.assert_allclose(features, module(torch.from_numpy(pixels)).numpy(), atol=1e-5)


def test_the_digest_depends_on_weights_and_preprocessing():
    import torch

    from p3dc.images.backbones.torch_network import TorchBackbone

    other = Preprocessing(short_side=13, crop=10, mean=(0, 0, 0), scale=(255, 255, 255))
    changed = small()
    with torch.no_grad():
        changed.bn1.bias[0] += 1
    first = TorchBackbone(small(), HOW, name="a").digest
    assert TorchBackbone(small(), HOW, name="b").digest == first
    assert TorchBackbone(small(), other, name="a").digest != first
    assert TorchBackbone(changed, HOW, name="a").digest != first


def test_modules_that_give_no_rows_are_refused():
    from torch import nn

    from p3dc.images.backbones.torch_network import TorchBackbone

    with pytest.raises(InputError, match=r"gives float32 of shape \(2, 3, 10, 10\) for two images"):
        TorchBackbone(nn.Identity(), HOW, name="same")
    with pytest.raises(InputError, match="gives a tuple"):
        TorchBackbone(nn.AdaptiveMaxPool2d(1, return_indices=True), HOW, name="pair")


def test_the_wide_network_has_its_published_size(network):
    assert sum(value.numel() for value in network.parameters()) == 36_479_194 - (
        640 * 10 + 10
    )  # less a classifier of ten
    convolutions = [name for name, value in network.named_parameters() if value.ndim == 4]
    assert len(convolutions) == 1 + 24 + 3


@pytest.mark.parametrize("zipped", [True, False])
def test_a_checkpoint_of_s2m2_is_loaded(tmp_path, network, checkpoint, zipped, rng):
    import torch

    from p3dc.images.backbones.torch_network import load_s2m2

    torch.save(checkpoint, tmp_path / "best.tar", _use_new_zipfile_serialization=zipped)
    backbone = load_s2m2(tmp_path / "best.tar")
    assert backbone.n_features == 640
    assert backbone.preprocessing.shape == (3, 80, 80)
    pixels = rng.normal(size=(1, 3, 80, 80)).astype(np.float32)
    with torch.no_grad():
        expected = network.eval()(torch.from_numpy(pixels)).numpy()
    np.testing.assert_array_equal(backbone.embed(pixels), expected)


def test_names_without_the_wrapper_and_without_counts_are_loaded(tmp_path):
    from p3dc.images.backbones.torch_network import load_weights

    network = small()
    state = {n: v + 1 for n, v in network.state_dict().items() if not n.endswith("num_batches_tracked")}
    load_weights(network, state, "best.tar")
    assert all((value == state[name]).all() for name, value in network.state_dict().items() if name in state)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda state: state.pop("bn1.bias"), r"best.tar has no weights bn1.bias\."),
        (
            lambda state: [state.pop(n) for n in list(state)[:9]],
            r"no weights conv1.weight, .* and \d more\.",
        ),
        (lambda state: state.update(head=state["bn1.bias"]), r"unknown weights head\."),
        (lambda state: state.update({"bn1.bias": state["bn1.bias"][:3]}), r"has \(3,\) for bn1.bias, not \(64,\)"),
        (lambda state: state.update({"bn1.bias": 3}), r"has a int for bn1.bias, not \(64,\)"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(change, sentence):
    from p3dc.images.backbones.torch_network import load_weights

    network = small()
    state = dict(network.state_dict())
    change(state)
    with pytest.raises(InputError, match=sentence):
        load_weights(network, state, "best.tar")


@pytest.mark.parametrize("content", [[1], {"epoch": 3}, {"state": [1]}, {"state": {1: 2}}])
def test_other_checkpoints_are_refused(tmp_path, content):
    import torch

    from p3dc.images.backbones.torch_network import load_s2m2

    torch.save(content, tmp_path / "best.tar")
    with pytest.raises(InputError, match="has no 'state' with names and weights"):
        load_s2m2(tmp_path / "best.tar")


class Runs:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return open, (self.target, "w")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_checkpoint_that_would_run_something_is_refused(tmp_path, zipped):
    import torch

    from p3dc.images.backbones.torch_network import load_s2m2

    evil = {"state": Runs(str(tmp_path / "ran"))}
    torch.save(evil, tmp_path / "best.tar", _use_new_zipfile_serialization=zipped)
    with pytest.raises(InputError, match="is damaged or holds more than tensors"):
        load_s2m2(tmp_path / "best.tar")
    assert not (tmp_path / "ran").exists()


def test_no_file_and_a_damaged_one_are_refused(tmp_path):
    from p3dc.images.backbones.torch_network import load_s2m2

    (tmp_path / "best.tar").write_bytes(b"PK hello")
    for name in ("best.tar", "none.tar"):
        with pytest.raises(InputError, match=f"{name} is damaged or"):
            load_s2m2(tmp_path / name)


@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_torch_are_read_without_it(tmp_path, zipped):
    import torch

    state = small().half().state_dict() | {"turned": torch.arange(6).reshape(2, 3).T, "part": torch.arange(9)[2:5]}
    torch.save(state, tmp_path / "net.pth", _use_new_zipfile_serialization=zipped)
    found = read_tensors(tmp_path / "net.pth")
    assert list(found) == list(state)
    for name, value in state.items():
        np.testing.assert_array_equal(found[name], value.numpy())
        assert found[name].dtype == value.numpy().dtype


@pytest.mark.parametrize("name", [name for name, lite in efficientnet_lite.LITES.items() if not lite.int8])
def test_the_networks_are_those_of_torch(name, tmp_path, monkeypatch, rng):
    import torch

    from benchmarks.backbone import EagerLite
    from p3dc.images.backbones.loading import load_backbone

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lite = efficientnet_lite.LITES[name]
    eager = EagerLite(read_tensors(efficientnet_lite.weights_path(lite)), lite).eval()
    pixels = rng.uniform(-1, 1, (2, 3, lite.crop, lite.crop)).astype(np.float32)
    with torch.inference_mode():
        expected = eager(torch.from_numpy(pixels)).numpy()
    np.testing.assert_allclose(load_backbone(name).embed(pixels), expected, atol=1e-4)


def test_nothing_else_needs_torch():
    code = "import sys, p3dc.images.backbones.loading as b; b.load_backbone(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
