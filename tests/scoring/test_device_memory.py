"""Devices and memory as users name them; none of this needs torch or a GPU."""

import sys
from types import SimpleNamespace

import pytest

from p3dc import compare, evaluate, search
from p3dc.baselines import NN
from p3dc.errors import InputError
from p3dc.scoring import device_memory as device
from tests.conftest import paper


class Torch(SimpleNamespace):
    """What is asked of torch about devices, on a machine with some GPUs."""

    def __init__(self, n_devices):
        super().__init__(
            cuda=SimpleNamespace(
                is_available=lambda: n_devices > 0,
                device_count=lambda: n_devices,
                mem_get_info=lambda device: (1000, 4000),
            )
        )

    @staticmethod
    def device(name):
        kind, _, index = name.partition(":")
        return SimpleNamespace(type=kind, index=int(index) if index else None)


@pytest.mark.parametrize("name", ["tpu", "cuda:", "cuda:x", "gpu", "", 0, "mps"])
def test_names_that_are_no_device_are_refused(name):
    with pytest.raises(InputError, match="It must be 'cpu', 'cuda', or one of several GPUs such as 'cuda:1'"):
        device.open_device(name)


def test_without_torch_the_extra_is_named(monkeypatch, novel, priors):
    monkeypatch.setitem(sys.modules, "torch", None)
    sentence = r'device \'cuda\' needs torch, which is not installed. Install it: pip install "p3dc-shot\[torch\]"'
    for call in (
        lambda: evaluate(paper(priors), novel, device="cuda"),
        lambda: compare([NN()], novel, device="cuda"),
        lambda: search(priors, novel, device="cuda"),
    ):
        with pytest.raises(InputError, match=sentence):
            call()


def test_without_a_gpu_one_plain_sentence_says_so(monkeypatch, novel, priors):
    monkeypatch.setitem(sys.modules, "torch", Torch(n_devices=0))
    sentence = "device is 'cuda', but torch finds no GPU here. Leave it out to compute on the CPU."
    with pytest.raises(InputError, match=sentence):
        evaluate(paper(priors), novel, device="cuda")


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", Torch(n_devices=2))
    assert device.open_device("cuda:1").torch.index == 1
    with pytest.raises(InputError, match="device is 'cuda:2', but the last GPU here is 'cuda:1'"):
        device.open_device("cuda:2")


@pytest.mark.parametrize(
    ("memory", "expected"),
    [(None, 500), (0.25, 250), (1, 1000), (5000, 5000), ("0.1", 100), ("2kB", 2000), ("1.5 MiB", 1572864), ("3G", 3e9)],
)
def test_memory_is_bytes_a_share_or_text(monkeypatch, memory, expected):
    monkeypatch.setitem(sys.modules, "torch", Torch(n_devices=1))
    assert device.open_device("cuda", memory).memory == expected


@pytest.mark.parametrize("memory", [0, -1, float("nan"), "much", "2TB", "-2GB", "0GB", [2]])
def test_memory_that_means_nothing_is_refused(monkeypatch, memory):
    monkeypatch.setitem(sys.modules, "torch", Torch(n_devices=1))
    with pytest.raises(InputError, match="It must be bytes, a share of the free memory, or text such as '2GB'"):
        device.open_device("cuda", memory)


def test_memory_without_a_device_is_refused(novel, priors):
    assert device.open_device(None) is None
    with pytest.raises(InputError, match="memory is '2GB', but no device is given"):
        search(priors, novel, memory="2GB")


def test_the_commands_refuse_a_device_before_they_read_anything(p3dc, tmp_path):
    for command in (
        ("evaluate", "--base", tmp_path / "none.npz", "--novel", tmp_path / "none.npz"),
        ("search", "--base", tmp_path / "none.npz"),
    ):
        code, out, error = p3dc(*command, "--device", "tpu")
        assert (code, out) == (2, "")
        assert error.count("\n") == 1
        assert "device is 'tpu'" in error
