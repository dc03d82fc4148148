"""Figures, as Display objects that hold their data and draw only in ``plot``."""

from p3dc.figures.comparison import GridComparisonDisplay
from p3dc.figures.explanation import ExplanationDisplay
from p3dc.figures.heat_map import GridDisplay
from p3dc.figures.saving import save_figure
from p3dc.figures.scores import AccuracyDisplay
from p3dc.figures.tsne import CalibrationDisplay

__all__ = [
    "AccuracyDisplay",
    "CalibrationDisplay",
    "ExplanationDisplay",
    "GridComparisonDisplay",
    "GridDisplay",
    "save_figure",
]
