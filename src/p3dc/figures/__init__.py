"""Pictures, as Display objects that hold their data and draw only when asked."""

from p3dc.figures.calibration import CalibrationDisplay
from p3dc.figures.comparison import GridComparisonDisplay
from p3dc.figures.grid import GridDisplay
from p3dc.figures.saving import save_figure

__all__ = ["CalibrationDisplay", "GridComparisonDisplay", "GridDisplay", "save_figure"]
