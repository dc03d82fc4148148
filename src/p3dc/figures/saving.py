"""Saving of figures."""

from pathlib import Path
from typing import TYPE_CHECKING

from p3dc.io.atomic import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format of the file's ending. The same figure gives the same file."""
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
    from matplotlib import rc_context

    with replacing(path) as temporary, rc_context({"svg.hashsalt": "p3dc"}):
        figure.savefig(temporary, format=path.suffix[1:], dpi=150, metadata=undated)
