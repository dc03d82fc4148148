"""Pictures, as Display objects that hold their data and draw only when asked."""

from p3dc.figures.calibration import CalibrationDisplay
from p3dc.figures.comparison import GridComparisonDisplay
from p3dc.figures.grid import GridDisplay

__all__ = ["CalibrationDisplay", "GridComparisonDisplay", "GridDisplay"]
