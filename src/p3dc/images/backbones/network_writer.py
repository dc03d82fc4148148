"""Writers of convolutional networks as ONNX graphs, in 32-bit floats or in 8-bit integers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Floats
from p3dc.images.backbones.onnx_messages import write_model, write_node, write_tensor, write_value

PIXELS, FEATURES = "pixels", "features"
WEIGHT_STEPS = 127
"""Weights become integers from -127 to 127."""

VALUE_STEPS = 255
"""Values between layers become integers from 0 to 255."""


class NetworkWriter:
    """Write a network layer by layer; each method returns the name of the value that its layer makes."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []

    def begin(self) -> str:
        """Return the value that the first layer takes."""
        self._constant("six", np.array(6, np.float32))
        self._constant("zero", np.array(0, np.float32))
        return PIXELS

    def convolve(
        self, flow: str, name: str, weight: Floats, bias: Floats, *, relu6: bool, **window: int | Sequence[int]
    ) -> str:
        """Convolve, and clip to 0 and 6 where ``relu6`` is set."""
        given = [flow, self._constant(f"{name}.weight", weight), self._constant(f"{name}.bias", bias)]
        made = self._node("Conv", given, name, **window)
        return self._node("Clip", [made, "zero", "six"], f"{made}.relu6") if relu6 else made

    def add(self, flow: str, before: str) -> str:
        """Add an earlier value."""
        return self._node("Add", [flow, before], f"{flow}.sum")

    def end(self, name: str, flow: str, crop: int, n_features: int) -> bytes:
        """Average over positions and return the model."""
        self._node("Flatten", [self._node("GlobalAveragePool", [flow], "pooled")], FEATURES)
        given, made = write_value(PIXELS, shape=["n", 3, crop, crop]), write_value(FEATURES, shape=["n", n_features])
        return write_model(name, self._nodes, self._constants, [given], [made])

    def _node(self, operation: str, inputs: list[str], output: str, **attributes: int | Sequence[int]) -> str:
        self._nodes.append(write_node(operation, inputs, output, **attributes))
        return output

    def _constant(self, name: str, values: npt.NDArray[Any]) -> str:
        self._constants.append(write_tensor(name, values))
        return name


class Int8Writer(NetworkWriter):
    """Write a network whose weights and values are integers of 8 bits with a scale.

    Each channel of a convolution has a scale, so that its largest weight is the largest integer, and each value has one
    for the range that it takes on photos. What lies outside that range is clipped, which does the work of ReLU6.
    Features are averaged in floats. ONNX Runtime merges a convolution with the conversions around it.

    Parameters
    ----------
    ranges : mapping of str to (float, float)
        The least and the greatest number of each value, by its name in :class:`NetworkWriter`.
    """

    def __init__(self, ranges: Mapping[str, tuple[float, float]]) -> None:
        super().__init__()
        self._ranges, self._scales = ranges, dict[str, np.float32]()

    def begin(self) -> str:
        """Return the value that the first layer takes."""
        return self._rounded(PIXELS, f"{PIXELS}.rounded", self._ranges[PIXELS])

    def convolve(
        self, flow: str, name: str, weight: Floats, bias: Floats, *, relu6: bool, **window: int | Sequence[int]
    ) -> str:
        """Convolve; the range of the result does the work of ReLU6."""
        largest = np.abs(weight).max(axis=(1, 2, 3))
        scale = (np.where(largest > 0, largest, 1) / WEIGHT_STEPS).astype(np.float32)
        steps = np.rint(weight / scale[:, None, None, None]).astype(np.int8)
        bias_scale = self._scales[flow] * scale
        bias_steps = np.rint(bias / bias_scale).clip(-(2.0**31), 2.0**31 - 128).astype(np.int32)
        given = [
            flow,
            self._floats(f"{name}.weight", steps, scale),
            self._floats(f"{name}.bias", bias_steps, bias_scale),
        ]
        made = f"{name}.relu6" if relu6 else name
        return self._rounded(self._node("Conv", given, f"{made}.exact", **window), made, self._ranges[made])

    def add(self, flow: str, before: str) -> str:
        """Add an earlier value."""
        made = f"{flow}.sum"
        return self._rounded(self._node("Add", [flow, before], f"{made}.exact"), made, self._ranges[made])

    def _rounded(self, exact: str, made: str, limits: tuple[float, float]) -> str:
        """Round a value to integers and back."""
        low, high = min(limits[0], 0.0), max(limits[1], 0.0)
        scale = np.float32((high - low) / VALUE_STEPS or 1)
        how = [
            self._constant(f"{made}.scale", np.array(scale)),
            self._constant(f"{made}.zero", np.array(np.rint(-low / scale), np.uint8)),
        ]
        self._scales[made] = scale
        steps = self._node("QuantizeLinear", [exact, *how], f"{made}.steps")
        return self._node("DequantizeLinear", [steps, *how], made)

    def _floats(self, name: str, steps: npt.NDArray[Any], scale: Floats) -> str:
        """Return constants as floats, of integers and the scale of each channel."""
        given = [
            self._constant(f"{name}.steps", steps),
            self._constant(f"{name}.scale", scale),
            self._constant(f"{name}.zero", np.zeros(len(scale), steps.dtype)),
        ]
        return self._node("DequantizeLinear", given, name, axis=0)
