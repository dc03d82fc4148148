"""Measure how many photos per second become features on a GPU, and whether the GPU waits for photos.

``python -m benchmarks.gpu_photos [--photos N] [--device cuda]`` needs the torch extra. EfficientNet-Lite0 runs in torch
with channels last and, with ``--half``, in float16. Photos are JPEGs of 500 × 375, made for the purpose and decoded by
one process for each core while the GPU works. Where decoding by itself is slower than the network by itself, the
processor sets the pace, and the GPU would need more cores beside it. Decoding by threads is shown for comparison.
"""

import argparse
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import nn

from benchmarks.backbone import EagerLite
from benchmarks.extraction import make_photos
from p3dc._arrays import Floats
from p3dc.images.backbones.backbone import GPU_STEP, Backbone, n_cores
from p3dc.images.backbones.efficientnet_lite import LITE0, weights_path
from p3dc.images.backbones.torch_network import TorchBackbone
from p3dc.images.decoding import read_image
from p3dc.images.embedding import embed_views
from p3dc.images.extraction import extract
from p3dc.images.sources import ImageFile, list_folder
from p3dc.io.torch_file import read_tensors

DIFFERENT = 256
"""Photos that are made; they are read again and again."""


class OnDevice(nn.Module):
    """A network with the memory format, and the precision, that suits a GPU."""

    def __init__(self, network: nn.Module, half: bool) -> None:
        super().__init__()
        self.dtype = torch.float16 if half else torch.float32
        self.network = network.to(self.dtype)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.network(images.to(dtype=self.dtype, memory_format=torch.channels_last))
        return found


class Blank(Backbone):
    """A network that takes no time, so that reading photos sets the pace."""

    def __init__(self, like: Backbone) -> None:
        self.name, self.digest, self.n_features = "blank", "", like.n_features
        self.preprocessing, self.step = like.preprocessing, like.step

    def _embed(self, batch: Floats) -> Floats:
        return np.zeros((len(batch), self.n_features), dtype=np.float32)

    def _embed_crops(self, crops: npt.NDArray[np.uint8]) -> Floats:
        return np.zeros((len(crops), self.n_features), dtype=np.float32)


def read(file: ImageFile) -> Image.Image:
    return read_image(file.path, short_side=LITE0.preprocessing.short_side)


def rate(n_photos: int, work: Callable[[], Any]) -> float:
    work()
    start = time.perf_counter()
    work()
    return n_photos / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--photos", type=int, default=4096)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--half", action="store_true")
    given = parser.parse_args()
    network = OnDevice(EagerLite(read_tensors(weights_path())), given.half)
    backbone = TorchBackbone(network, LITE0.preprocessing, name="lite0 in torch", device=given.device)
    crop = backbone.preprocessing.crop
    crops = np.random.default_rng(0).integers(0, 256, (4 * GPU_STEP, crop, crop, 3), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        photos.mkdir()
        make_photos(photos, min(given.photos, DIFFERENT))
        files = list(list_folder(photos))
        files = [files[place % len(files)] for place in range(given.photos)]
        blank = Blank(backbone)

        def read_all(some: list[ImageFile], processes: bool) -> None:
            deque(embed_views(some, read, blank, processes=processes), maxlen=0)

        few = files[: 4 * GPU_STEP]
        threads = rate(len(few), lambda: read_all(few, processes=False))
        processes = rate(len(files), lambda: read_all(files, processes=True))
        embed = rate(len(crops), lambda: backbone.embed_crops(crops))
        start = time.perf_counter()
        extract(files[: 2 * GPU_STEP], backbone, Path(folder) / "first")  # imports, and loads kernels
        first = time.perf_counter() - start
        start = time.perf_counter()
        extract(files, backbone, Path(folder) / "features")
        both = len(files) / (time.perf_counter() - start)
    print(f"{n_cores()} cores, {given.device}, {'float16' if given.half else 'float32'}, photos per second:")
    print(f"  decoding in threads         {threads:>9.0f}")
    print(f"  decoding in processes       {processes:>9.0f}")
    print(f"  network, with its transfers {embed:>9.0f}")
    print(f"  extraction                  {both:>9.0f}  ({both / min(processes, embed):.0%} of the slower of these)")
    print(f"the first {2 * GPU_STEP} photos of a process take {first:.1f} s")


if __name__ == "__main__":
    main()
