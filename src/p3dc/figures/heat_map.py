"""The heat map of accuracy over (α, β)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Values = npt.NDArray[np.float64]


class GridPoint(Protocol):
    """One (α, β) with its accuracy and half the width of its 95 % interval."""

    @property
    def alpha(self) -> float: ...  # noqa: D102
    @property
    def beta(self) -> float: ...  # noqa: D102
    @property
    def accuracy(self) -> float: ...  # noqa: D102
    @property
    def interval(self) -> float: ...  # noqa: D102


class Grid(Protocol):
    """The accuracy at each point of a grid: a :class:`p3dc.evaluation.search.SearchResult`."""

    @property
    def alpha(self) -> Values: ...  # noqa: D102
    @property
    def beta(self) -> Values: ...  # noqa: D102
    @property
    def accuracy(self) -> Values: ...  # noqa: D102
    @property
    def interval(self) -> Values: ...  # noqa: D102
    @property
    def best(self) -> GridPoint: ...  # noqa: D102
    def plane(self) -> Self: ...  # noqa: D102
    def point(self, i: int) -> GridPoint: ...  # noqa: D102


@dataclass(eq=False, repr=False)
class GridDisplay:
    """Heat map of accuracy over (α, β), the paper's Figure 4.

    Parameters
    ----------
    alpha, beta, accuracy : arrays of shape (n_points,)
    chosen : GridPoint
        The point to mark.
    title : str

    Attributes
    ----------
    ax_ : matplotlib Axes
        Set by :meth:`plot`.

    Examples
    --------
    >>> import numpy as np
    >>> from p3dc.figures import GridDisplay
    >>> from p3dc.evaluation.search import SearchResult, grid
    >>> alpha, beta = grid(step=0.5).T
    >>> result = SearchResult(alpha, beta, 0.6 + 0.1 * beta, np.full(6, 0.01), n_tasks=100)
    >>> display = GridDisplay.from_search(result, title="validation, 1 shot")
    >>> display.chosen.beta
    1.0
    """

    alpha: Values
    beta: Values
    accuracy: Values
    chosen: GridPoint
    title: str = ""

    @classmethod
    def from_search(cls, result: Grid, title: str = "") -> "GridDisplay":
        """Show the grid of a search around its best point."""
        plane = result.plane()
        return cls(plane.alpha, plane.beta, plane.accuracy, plane.best, title)

    def plot(self, ax: "Axes | None" = None, **mesh_options: Any) -> "GridDisplay":
        """Draw, on new axes if none are given.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        **mesh_options
            Passed to :meth:`matplotlib.axes.Axes.pcolormesh`.

        Returns
        -------
        self
        """
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(layout="constrained")[1]
        columns, column = np.unique(self.alpha, return_inverse=True)
        rows, row = np.unique(self.beta, return_inverse=True)
        table = np.full((len(rows), len(columns)), np.nan)
        table[row, column] = 100 * self.accuracy
        options = {"cmap": "magma", "shading": "nearest"} | mesh_options
        mesh = ax.pcolormesh(columns, rows, np.ma.masked_invalid(table), **options)
        bar = ax.figure.colorbar(mesh, ax=ax, shrink=0.85)
        bar.set_label("accuracy (%)")
        bar.outline.set_visible(False)
        ax.plot(self.chosen.alpha, self.chosen.beta, marker="*", markersize=16, color="white", markeredgecolor="black")
        text = f"({self.chosen.alpha:g}, {self.chosen.beta:g}): {100 * self.chosen.accuracy:.2f} %"
        ax.annotate(text, (0.97, 0.95), xycoords="axes fraction", ha="right", va="top")
        if min(self.alpha.min(), self.beta.min()) < 0:
            ax.plot([0, 1, 0, 0], [0, 0, 1, 0], color="white", linewidth=1)
        ax.set(xlabel="α (sample level)", ylabel="β (task level)", title=self.title, aspect="equal")
        ax.spines[["top", "right"]].set_visible(False)
        self.ax_ = ax
        return self
