"""Feature maps of ONNX networks: the input of the average that such a network ends in."""

import numpy as np

from p3dc._arrays import Floats
from p3dc.errors import InputError

POOLINGS = ("GlobalAveragePool", "ReduceMean")
RESHAPES = ("Flatten", "Squeeze", "Reshape", "Identity", "Dropout")
"""Operations after the pooling that change no feature."""

POSITIONS = ((2, 3), (1, 2), (1,), (2,))
"""Axes that positions may have: of NCHW, of NHWC, of tokens before features, and of features before tokens."""


def ending_before_pooling(content: bytes, source: str) -> bytes:
    """Return the network whose output is what the given one averages at its end."""
    import onnx

    model = onnx.load_model_from_string(content)
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    node = makers.get(graph.output[0].name)
    while node is not None and node.op_type in RESHAPES:
        node = makers.get(node.input[0])
    if node is None or node.op_type not in POOLINGS:
        last = "nothing" if node is None else node.op_type
        raise InputError(
            f"{source} ends in {last}, not in an average over positions, so it has no feature maps. "
            "Cut it after its pooling."
        )
    maps = onnx.helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None)
    del graph.output[:]
    graph.output.append(maps)
    return bytes(model.SerializeToString())


def position_axes(maps: Floats, features: Floats, source: str) -> tuple[int, ...]:
    """Find the axes of the maps of two images over which they average to the features of these images.

    Examples
    --------
    >>> import numpy as np
    >>> from p3dc.images.backbones.onnx_maps import position_axes
    >>> maps = np.random.default_rng(0).normal(size=(2, 5, 3, 3))
    >>> position_axes(maps, maps.mean(axis=(2, 3)), "a network")
    (2, 3)
    """
    slack = 1e-3 * float(np.abs(features).max(initial=1e-9))
    for axes in POSITIONS:
        if maps.ndim == 2 + len(axes) and max(axes) < maps.ndim:
            mean = maps.mean(axis=axes)
            if mean.shape == features.shape and np.allclose(mean, features, rtol=1e-3, atol=slack):
                return axes
    raise InputError(
        f"{source} averages an array of shape {maps.shape} for two images, and no mean over positions gives its "
        f"{features.shape[-1]} features. Export it with a global average pooling at its end."
    )
