"""Networks of torch as backbones, and the WideResNet of S2M2. This module needs the torch extra."""

import hashlib
import os
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from p3dc._arrays import Floats
from p3dc.errors import InputError
from p3dc.images.backbones.backbone import GPU_STEP, STEP, Backbone, count_features, digest_of, first_line
from p3dc.images.preprocessing import Preprocessing

S2M2_PREPROCESSING = Preprocessing(
    short_side=92,
    crop=80,
    mean=(0.485 * 255, 0.456 * 255, 0.406 * 255),
    scale=(0.229 * 255, 0.224 * 255, 0.225 * 255),
)
"""As in S2M2's evaluation, with two exceptions: S2M2 squeezes images into a square first, and resizes bilinearly."""

CLASSIFIER = "linear."
"""Prefix of the weights of S2M2's last layer, which features do not need."""


class TorchBackbone(Backbone):
    """A torch module that returns a row of features for each image.

    Parameters
    ----------
    module : torch.nn.Module
        It is moved to the device, put into evaluation mode and run without gradients.
    preprocessing : Preprocessing
        How images are preprocessed for it.
    name : str
        What people call it.
    device : str, default="cpu"
        Where it runs.
    """

    def __init__(self, module: nn.Module, preprocessing: Preprocessing, *, name: str, device: str = "cpu") -> None:
        self.name = name
        self.preprocessing = preprocessing
        self.digest = digest_of(_state_digest(module), preprocessing)
        self._module = module.to(device).eval()
        self._device = device
        self.step = STEP if torch.device(device).type == "cpu" else GPU_STEP
        self.n_features = count_features(self._embed(np.zeros((2, *preprocessing.shape), dtype=np.float32)), name)

    def _embed(self, batch: Floats) -> Floats:
        return self._run(torch.from_numpy(np.ascontiguousarray(batch)).to(self._device))

    def _embed_crops(self, crops: npt.NDArray[np.uint8]) -> Floats:
        """Standardize on the device, which takes bytes sooner than floats."""
        return self._run(self.preprocessing.standardize(torch.from_numpy(np.ascontiguousarray(crops)).to(self._device)))

    def _run(self, images: torch.Tensor) -> Floats:
        with torch.inference_mode():
            found = self._module(images)
        if not isinstance(found, torch.Tensor):
            raise InputError(f"{self.name} gives a {type(found).__name__}. It must give one tensor of features.")
        features: Floats = found.float().cpu().numpy()
        return features


class WideBlock(nn.Module):
    """Two convolutions, each after batch normalisation and ReLU, with a skip connection."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(n_in)
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.convShortcut = None if n_in == n_out else nn.Conv2d(n_in, n_out, 1, stride, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Add the convolved images to the skipped ones."""
        active = functional.relu(self.bn1(images))
        skipped = images if self.convShortcut is None else self.convShortcut(active)
        convolved: torch.Tensor = self.conv2(functional.relu(self.bn2(self.conv1(active))))
        return skipped + convolved


def wide_stage(n_blocks: int, n_in: int, n_out: int, stride: int) -> nn.Module:
    """Make a stage of blocks of one width, named as in S2M2's checkpoints; the first block may halve the image."""
    rest = (WideBlock(n_out, n_out, 1) for _ in range(n_blocks - 1))
    return nn.Sequential(OrderedDict(layer=nn.Sequential(WideBlock(n_in, n_out, stride), *rest)))


class WideResNet(nn.Module):
    """The wide residual network of Zagoruyko and Komodakis (2016) up to its pooled features; by default that of S2M2.

    Parameters
    ----------
    depth : int, default=28
        Number of layers; 4 more than a multiple of 6.
    width : int, default=10
        How many times wider it is than a residual network.
    """

    def __init__(self, depth: int = 28, width: int = 10) -> None:
        super().__init__()
        n_blocks, rest = divmod(depth - 4, 6)
        if rest or n_blocks < 1:
            raise InputError(f"depth is {depth}. It must be 4 more than a multiple of 6.")
        channels = (16, 16 * width, 32 * width, 64 * width)
        self.conv1 = nn.Conv2d(3, channels[0], 3, padding=1, bias=False)
        self.block1 = wide_stage(n_blocks, channels[0], channels[1], 1)
        self.block2 = wide_stage(n_blocks, channels[1], channels[2], 2)
        self.block3 = wide_stage(n_blocks, channels[2], channels[3], 2)
        self.bn1 = nn.BatchNorm2d(channels[3])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Compute 64 × width features for each image."""
        found = self.block3(self.block2(self.block1(self.conv1(images))))
        return functional.relu(self.bn1(found)).mean(dim=(2, 3))


def load_s2m2(
    path: str | os.PathLike[str], preprocessing: Preprocessing = S2M2_PREPROCESSING, *, device: str = "cpu"
) -> TorchBackbone:
    """Load a WideResNet-28-10 that S2M2 trained.

    Parameters
    ----------
    path : path
        A checkpoint: a dict whose ``state`` maps names to weights. Only tensors and plain containers are read from it.
    preprocessing : Preprocessing, optional
        By default images of 80 × 80 with ImageNet's mean and deviation.
    device : str, default="cpu"
        Where it runs.

    Returns
    -------
    TorchBackbone
    """
    network = WideResNet()
    load_weights(network, _state(path), path)
    return TorchBackbone(network, preprocessing, name="s2m2-wrn-28-10", device=device)


def load_weights(network: nn.Module, state: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Load weights into a network; refuse any that are missing, unknown or of another shape, by name."""
    given = {name.removeprefix("module."): value for name, value in state.items()}
    given = {name: value for name, value in given.items() if not name.startswith(CLASSIFIER)}
    wanted = network.state_dict()
    missing = [name for name in wanted if name not in given and not name.endswith(".num_batches_tracked")]
    unknown = [name for name in given if name not in wanted]
    if missing:
        raise InputError(f"{path} has no weights {_few(missing)}. Give a checkpoint of this network.")
    if unknown:
        raise InputError(f"{path} has the unknown weights {_few(unknown)}. Give a checkpoint of this network.")
    for name, value in given.items():
        if not isinstance(value, torch.Tensor) or value.shape != wanted[name].shape:
            got = tuple(value.shape) if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
            raise InputError(
                f"{path} has {got} for {name}, not {tuple(wanted[name].shape)}. Give a checkpoint of this network."
            )
    network.load_state_dict(given, strict=False)


def _state(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise anything
        what = "holds more than tensors" if isinstance(error, pickle.UnpicklingError) else "cannot be read"
        raise InputError(f"{path} is damaged or {what} ({first_line(error)}). Fetch it again.") from None
    state = content.get("state") if isinstance(content, dict) else None
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise InputError(f"{path} has no 'state' with names and weights. Give a checkpoint of S2M2.")
    return state


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _state_digest(module: nn.Module) -> bytes:
    total = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        array = np.ascontiguousarray(value.detach().cpu().numpy())
        total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        total.update(array.data)
    return total.digest()
