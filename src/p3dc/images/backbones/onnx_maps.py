"""Feature maps of ONNX networks: the input of the average that such a network ends in."""

import numpy as np

from p3dc._arrays import Floats
from p3dc.errors import InputError
from p3dc.images.backbones.onnx_messages import Model

POOLINGS = ("GlobalAveragePool", "ReduceMean")
RESHAPES = ("Flatten", "Squeeze", "Reshape", "Identity", "Dropout")
"""Operations after the pooling that change no feature."""

POSITIONS = ((2, 3), (1, 2), (1,), (2,))
"""Axes that positions may have: of NCHW, of NHWC, of tokens before features, and of features before tokens."""


def ending_before_pooling(content: bytes, source: str) -> bytes:
    """Return the network whose output is what the given one averages at its end."""
    model = Model.parse(content)
    node = model.makers.get(model.outputs[0])
    while node is not None and node.operation in RESHAPES:
        node = model.makers.get(node.inputs[0])
    if node is None or node.operation not in POOLINGS:
        last = "nothing" if node is None else node.operation
        raise InputError(
            f"{source} ends in {last}, not in an average over positions, so it has no feature maps. "
            "Cut it after its pooling."
        )
    return model.ending_in(node.inputs[0])


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
