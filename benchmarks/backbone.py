"""Compare the speed of the default backbone with that of the same network in eager torch, on two cores.

``python -m benchmarks.backbone`` needs the torch extra. Both networks have the same weights and get the same noise as
images. They are timed in alternating rounds, and the best round of each counts.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from p3dc._arrays import Array
from p3dc.images.backbones import efficientnet_lite
from p3dc.images.backbones.efficientnet_lite import LITE0, Lite
from p3dc.images.backbones.loading import load_backbone
from p3dc.io.torch_file import read_tensors

THREADS = 2
BATCHES = (1, 8, 32)
IMAGES = 64
"""Number of images in a round."""

ROUNDS = 6
LEAST = 3


class Convolution(nn.Module):
    def __init__(self, part: efficientnet_lite.Convolution, size: int, tensors: dict[str, Array]) -> None:
        super().__init__()
        n_out, n_in, kernel, _ = part.shape
        first, last = efficientnet_lite.same_padding(size, kernel, part.stride)
        inside = first if first == last else 0  # torch's own padding is the same on both sides
        self.padding = None if first == last else (first, last, first, last)
        self.conv = nn.Conv2d(n_in * part.groups, n_out, kernel, part.stride, inside, groups=part.groups, bias=False)
        self.norm = nn.BatchNorm2d(n_out, eps=efficientnet_lite.EPSILON)
        self.relu6 = part.relu6
        self.conv.load_state_dict({"weight": torch.from_numpy(tensors[f"{part.weight}.weight"])})
        names = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
        self.norm.load_state_dict({name: torch.from_numpy(tensors[f"{part.norm}.{name}"]) for name in names})

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        padded = images if self.padding is None else functional.pad(images, self.padding)
        found: torch.Tensor = self.norm(self.conv(padded))
        return functional.relu6(found, inplace=True) if self.relu6 else found


class EagerLite(nn.Module):
    def __init__(self, tensors: dict[str, Array], lite: Lite = LITE0) -> None:
        super().__init__()
        size = lite.crop
        self.blocks = nn.ModuleList()
        self.skips = []
        for block in efficientnet_lite.blocks(lite):
            parts = []
            for part in block.convolutions:
                parts.append(Convolution(part, size, tensors))
                size = -(-size // part.stride)
            self.blocks.append(nn.Sequential(*parts))
            self.skips.append(block.skip)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        for block, skip in zip(self.blocks, self.skips, strict=True):
            images = images + block(images) if skip else block(images)
        return images.mean(dim=(2, 3))


def rate(network: Callable[[Any], Any], images: Any) -> float:
    """Return the images per second of one round."""
    n_batches = IMAGES // len(images)
    start = time.perf_counter()
    for _ in range(n_batches):
        network(images)
    return n_batches * len(images) / (time.perf_counter() - start)


def main() -> None:
    torch.set_num_threads(THREADS)
    eager = EagerLite(read_tensors(efficientnet_lite.weights_path())).eval()
    backbone = load_backbone(threads=THREADS)
    rng = np.random.default_rng(0)
    print("batch  torch (images/s)  backbone (images/s)  ratio  must be  largest difference of features")
    for size in BATCHES:
        pixels = rng.uniform(-1, 1, (size, *backbone.preprocessing.shape)).astype(np.float32)
        images = torch.from_numpy(pixels)
        difference = np.abs(backbone.embed(pixels) - eager(images).numpy()).max()
        rounds = [(rate(eager, images), rate(backbone.embed, pixels)) for _ in range(ROUNDS)]
        slow, fast = (max(rates) for rates in zip(*rounds, strict=True))
        print(f"{size:>5}  {slow:>16.1f}  {fast:>19.1f}  {fast / slow:>5.1f}  {LEAST:>7}  {difference:>30.1e}")


if __name__ == "__main__":
    with torch.inference_mode():
        main()
