"""Scorers of many tasks at many (α, β), as ``evaluate`` and ``search`` make them."""

from typing import TYPE_CHECKING

from p3dc._arrays import Floats
from p3dc.method import Attention
from p3dc.priors.geometry import Geometry
from p3dc.scoring.device_memory import Device
from p3dc.scoring.numpy_scorer import TaskScorer
from p3dc.scoring.whitened import PreparedScorer

if TYPE_CHECKING:
    from p3dc.scoring.torch_engine import DeviceScorer


def plain_scorer(features: Floats, priors: Floats, points: Floats, attention: Attention = "raw") -> TaskScorer:
    """Make the scorer of the plain space, at points of shape (G, 2)."""
    return TaskScorer(features, priors, *points.T, attention=attention)


def whitened_scorer(features: Floats, geometry: Geometry, points: Floats | None = None) -> TaskScorer:
    """Make the scorer of the whitened space, at points of shape (G, 2) or with adaptive weights."""
    return PreparedScorer(features, geometry, *(() if points is None else points.T))


def plain_scorer_on(device: Device, features: Floats, priors: Floats, points: Floats) -> "DeviceScorer":
    """Make the scorer of the plain space on a device."""
    from p3dc.scoring.torch_engine import on_device

    return on_device(plain_scorer(features, priors, points), device)


def whitened_scorer_on(
    device: Device, features: Floats, geometry: Geometry, points: Floats | None = None
) -> "DeviceScorer":
    """Make the scorer of the whitened space on a device."""
    from p3dc.scoring.torch_engine import on_device

    return on_device(whitened_scorer(features, geometry, points), device)
