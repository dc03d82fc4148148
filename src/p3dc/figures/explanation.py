"""The picture of why a photo has its label."""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import ImageOps

from p3dc.figures.saving import save_figure
from p3dc.images.classifier import UNKNOWN
from p3dc.images.examples import open_thumbnail
from p3dc.images.explanation import Explanation, Pull

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SQUARE = 48
"""Side of the thumbnails of a cluster, in pixels."""


@dataclass(eq=False, repr=False)
class ExplanationDisplay:
    """The photo, its cosines to the classes, and its nearest examples with the base classes that pulled them.

    Parameters
    ----------
    explanation : Explanation

    Attributes
    ----------
    figure_ : matplotlib Figure
        Set by :meth:`plot`.
    """

    explanation: Explanation

    def plot(self, figure: "Figure | None" = None) -> "ExplanationDisplay":
        """Draw, on a new figure if none is given, and return self."""
        shown, prediction = self.explanation, self.explanation.prediction
        n_columns = len(shown.neighbours)
        if figure is None:
            from matplotlib.figure import Figure
            from matplotlib.layout_engine import ConstrainedLayoutEngine

            layout = ConstrainedLayoutEngine(rect=(0, 0, 0.98, 1))  # titles may be wider than their photos
            figure = Figure(figsize=(3.2 + 2.3 * n_columns, 5.4), layout=layout)
        grid = figure.add_gridspec(2, n_columns + 1, width_ratios=[1.5] + [1] * n_columns, height_ratios=[3, 2])
        title = f"{prediction.label}\n{100 * prediction.probability:.0f} %, then {prediction.runner_up}"
        if prediction.rejected:
            title = f"{UNKNOWN}\nnearest is {prediction.runner_up}"
        _draw_photo(figure.add_subplot(grid[0, 0]), shown.photo, title, weight="bold")
        _draw_cosines(figure.add_subplot(grid[1, 0]), shown)
        pulls = [pull for near in shown.neighbours for pull in near.pulls]
        known = "clusters" if pulls and all(pull.central for pull in pulls) else "base classes"
        meaning = f"weight of {known}" if shown.pulling else f"{known} it resembles"
        for column, near in enumerate(shown.neighbours, start=1):
            title = f"{near.example.label}\ncosine {near.cosine:.2f}"
            _draw_photo(figure.add_subplot(grid[0, column]), near.example.thumbnail, title)
            _draw_pulls(figure.add_subplot(grid[1, column]), near.pulls, meaning if column == 1 else "")
        weights = f"α = {shown.alpha:.2f}, β = {shown.beta:.2f}" if shown.alpha else f"β = {shown.beta:.2f}"
        how = f"pulled by {known} with weight {weights}" if shown.pulling else f"{known} do not pull"
        figure.suptitle(f"The nearest examples; {how}", fontsize=11)
        self.figure_ = figure
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Draw into a file, in the format that its ending names."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing")  # names in scripts that the font cannot show
            save_figure(self.plot().figure_, Path(path))


def _draw_photo(ax: Any, jpeg: bytes, title: str, weight: str = "normal") -> None:
    lines = "\n".join(_shortened(line, 26) for line in title.split("\n"))
    ax.imshow(np.asarray(open_thumbnail(jpeg)))
    ax.set_title(lines, fontsize=9, fontweight=weight, parse_math=False)
    ax.axis("off")


def _draw_cosines(ax: Any, shown: Explanation) -> None:
    names = sorted(shown.cosines, key=shown.cosines.__getitem__, reverse=True)[:6][::-1]
    label = "" if shown.prediction.rejected else shown.prediction.label
    colours = ["C0" if name == label else "0.75" for name in names]
    ax.barh(np.arange(len(names)), [shown.cosines[name] for name in names], color=colours)
    ax.set_yticks(np.arange(len(names)), [_shortened(name) for name in names], parse_math=False)
    ax.set_xlabel("cosine to the class")
    if np.isfinite(shown.unknown_below):
        ax.axvline(shown.unknown_below, color="0.3", linewidth=1, linestyle=":")
        ax.set_xlabel("cosine to the class\n(unknown below the dotted line)")
    _style(ax)


def _draw_pulls(ax: Any, pulls: tuple[Pull, ...], meaning: str) -> None:
    if not pulls:
        ax.axis("off")
        return
    heights = np.arange(len(pulls))[::-1].tolist()
    ax.barh(heights, [pull.weight for pull in pulls], color="C1", alpha=0.5)
    for height, pull in zip(heights, pulls, strict=True):
        thumbnails = [row.thumbnail for row in pull.central if row.thumbnail]
        if thumbnails:
            _draw_thumbnails(ax, height, thumbnails)
        else:
            ax.text(0, height, f" {_shortened(pull.title)}", va="center", fontsize=8, parse_math=False)
    ax.set_yticks([])
    ax.set_xlabel(meaning)
    _style(ax)


def _draw_thumbnails(ax: Any, height: float, thumbnails: list[bytes]) -> None:
    """Draw square thumbnails in a row to the left of the axes, at a height of it."""
    from matplotlib.offsetbox import AnnotationBbox, HPacker, OffsetImage

    pictures = [np.asarray(ImageOps.fit(open_thumbnail(jpeg), (SQUARE, SQUARE))) for jpeg in thumbnails]
    row = HPacker(children=[OffsetImage(picture, zoom=0.42) for picture in pictures], pad=0, sep=2)
    beside = AnnotationBbox(
        row, (0, height), (-4, 0), boxcoords="offset points", box_alignment=(1, 0.5), frameon=False, pad=0
    )
    ax.add_artist(beside)


def _style(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)


def _shortened(text: str, length: int = 20) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
