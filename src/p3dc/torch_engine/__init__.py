"""The engine on a device of torch, in float64 throughout. This package needs the torch extra.

Shape letters are those of :mod:`p3dc.engine`.
"""

from p3dc.device import Device
from p3dc.engine import TaskScorer
from p3dc.prepared import PreparedScorer
from p3dc.torch_engine.prepared import PreparedDeviceScorer
from p3dc.torch_engine.scorer import DeviceScorer, memory_told
from p3dc.torch_engine.tables import TableScorer

__all__ = ["DeviceScorer", "on_device"]


def on_device(scorer: TaskScorer, device: Device) -> DeviceScorer:
    """Let a device do what a scorer does."""
    with memory_told(device):
        if isinstance(scorer, PreparedScorer):
            return PreparedDeviceScorer(scorer, device)
        return TableScorer(scorer, device)
