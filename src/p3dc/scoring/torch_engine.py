"""The engine on a device of torch, in float64 throughout. This package needs the torch extra.

Shape letters are those of :mod:`p3dc.scoring.numpy_scorer`.
"""

from p3dc.scoring.device_memory import Device
from p3dc.scoring.numpy_scorer import TaskScorer
from p3dc.scoring.torch_scorer import DeviceScorer, memory_told
from p3dc.scoring.torch_tables import TableScorer
from p3dc.scoring.torch_whitened import PreparedDeviceScorer
from p3dc.scoring.whitened import PreparedScorer

__all__ = ["DeviceScorer", "on_device"]


def on_device(scorer: TaskScorer, device: Device) -> DeviceScorer:
    """Let a device do what a scorer does."""
    with memory_told(device):
        if isinstance(scorer, PreparedScorer):
            return PreparedDeviceScorer(scorer, device)
        return TableScorer(scorer, device)
