"""Two heat maps side by side: (α, β) chosen on validation classes, and its accuracy on novel classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from p3dc.errors import InputError
from p3dc.figures.heat_map import Grid, GridDisplay, GridPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False, repr=False)
class GridComparisonDisplay:
    """Heat maps of accuracy over (α, β) on validation and on novel classes, the paper's Figure 4.

    Both mark the point that was chosen on validation. Each has its own colours, since the classes differ in difficulty.

    Parameters
    ----------
    validation, novel : GridDisplay
        With the same point as ``chosen``, each with its own accuracy.
    best : GridPoint
        The most accurate point on novel. The text names it, but it is not marked, since it cannot be chosen.

    Attributes
    ----------
    axes_ : tuple of two matplotlib Axes
        Set by :meth:`plot`.

    Examples
    --------
    >>> import numpy as np
    >>> from p3dc.figures import GridComparisonDisplay
    >>> from p3dc.evaluation.search import SearchResult, grid
    >>> alpha, beta = grid(step=0.5).T
    >>> validation = SearchResult(alpha, beta, 0.6 + 0.1 * beta, np.full(6, 0.01), n_tasks=100)
    >>> novel = SearchResult(alpha, beta, 0.7 + 0.1 * alpha, np.full(6, 0.01), n_tasks=100)
    >>> display = GridComparisonDisplay.from_searches(validation, novel)
    >>> display.novel.chosen.beta
    1.0
    >>> print(display)
    Chosen on validation, α = 0, β = 1: 70.00 ± 1.00 %; on novel 70.00 ± 1.00 %, 10.00 points below its best point.
    """

    validation: GridDisplay
    novel: GridDisplay
    best: GridPoint

    @classmethod
    def from_searches(cls, validation: Grid, novel: Grid, title: str = "") -> "GridComparisonDisplay":
        """Show two searches over the same grid.

        Parameters
        ----------
        validation, novel : SearchResult
        title : str, default=""
            Precedes the name of the set in both titles.

        Returns
        -------
        GridComparisonDisplay
        """
        chosen = validation.best
        prefix = f"{title}, " if title else ""
        on_novel = _point_at(novel, chosen)
        return cls(
            GridDisplay(
                validation.alpha, validation.beta, validation.accuracy, chosen, f"{prefix}validation (★ chosen here)"
            ),
            GridDisplay(novel.alpha, novel.beta, novel.accuracy, on_novel, f"{prefix}novel (★ chosen on validation)"),
            novel.best,
        )

    def __str__(self) -> str:
        here, there = self.validation.chosen, self.novel.chosen
        below = 100 * (self.best.accuracy - there.accuracy)
        return f"Chosen on validation, {here}; on novel {100 * there.accuracy:.2f} ± {100 * there.interval:.2f} %, " + (
            f"{below:.2f} points below its best point." if below > 0 else "its best point too."
        )

    def plot(self, axes: "Sequence[Axes] | None" = None, **mesh_options: Any) -> "GridComparisonDisplay":
        """Draw, on new axes if none are given.

        Parameters
        ----------
        axes : two matplotlib Axes, optional
            For validation and for novel.
        **mesh_options
            Passed to :meth:`matplotlib.axes.Axes.pcolormesh` for both.

        Returns
        -------
        self
        """
        if axes is None:
            import matplotlib.pyplot as plt

            axes = tuple(plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")[1])
        if len(axes) != 2:
            raise InputError(f"there are {len(axes)} axes. Give two, for validation and for novel.")
        self.validation.plot(axes[0], **mesh_options)
        self.novel.plot(axes[1], **mesh_options)
        self.axes_ = (axes[0], axes[1])
        return self


def _point_at(result: Grid, point: GridPoint) -> GridPoint:
    [places] = np.nonzero(np.isclose(result.alpha, point.alpha) & np.isclose(result.beta, point.beta))
    if not len(places):
        raise InputError(
            f"α = {point.alpha:g}, β = {point.beta:g} was chosen on validation, but is not in the grid on novel. "
            "Search both with the same step and margin."
        )
    return result.point(int(places[0]))
