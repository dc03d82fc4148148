"""Figures, as Display objects that hold their data and draw only in ``plot``."""

from pathlib import Path
from typing import TYPE_CHECKING

from p3dc.figures.comparison import GridComparisonDisplay
from p3dc.figures.heat_map import GridDisplay
from p3dc.figures.tsne import CalibrationDisplay
from p3dc.io.atomic import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CalibrationDisplay", "GridComparisonDisplay", "GridDisplay", "save_figure"]


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format of the file's ending. The same figure gives the same file."""
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
    from matplotlib import rc_context

    with replacing(path) as temporary, rc_context({"svg.hashsalt": "p3dc"}):
        figure.savefig(temporary, format=path.suffix[1:], dpi=150, metadata=undated)
