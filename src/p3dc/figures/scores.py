"""The accuracies of tasks, one box for each classifier."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False, repr=False)
class AccuracyDisplay:
    """Box plots of the accuracies of tasks, with the mean of each classifier and its 95 % interval.

    Parameters
    ----------
    accuracies : mapping from name to array of shape (n_tasks,)
    intervals : mapping from name to float
        Half the width of the interval of each mean.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Set by :meth:`plot`.

    Examples
    --------
    >>> import numpy as np
    >>> from p3dc.evaluation.results import Comparison, TaskScores
    >>> scores = {"L2N": TaskScores(np.array([0.5, 0.7])), "NN": TaskScores(np.array([0.4, 0.6]))}
    >>> display = Comparison(scores).plot()
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['L2N', 'NN']
    """

    accuracies: Mapping[str, npt.NDArray[np.float64]]
    intervals: Mapping[str, float]

    def plot(self, ax: "Axes | None" = None, **box_options: Any) -> "AccuracyDisplay":
        """Draw, on new axes if none are given.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        **box_options
            Passed to :meth:`matplotlib.axes.Axes.boxplot`.

        Returns
        -------
        self
        """
        if ax is None:
            import matplotlib.pyplot as plt

            height = 1 + 0.5 * len(self.accuracies)
            ax = plt.subplots(figsize=(6.4, height), layout="constrained")[1]
        places = np.arange(len(self.accuracies))
        boxes = [100 * accuracy for accuracy in self.accuracies.values()]
        options: dict[str, Any] = {
            "orientation": "horizontal",
            "widths": 0.6,
            "showfliers": False,
            "medianprops": {"color": "grey"},
        }
        ax.boxplot(boxes, positions=places, tick_labels=list(self.accuracies), **(options | box_options))
        means = [box.mean() for box in boxes]
        widths = np.nan_to_num([100 * self.intervals[name] for name in self.accuracies])
        ax.errorbar(means, places, xerr=widths, fmt="o", color="#0072B2", capsize=3, label="mean, 95 % interval")
        ax.invert_yaxis()
        ax.set(xlabel="accuracy of a task (%)")
        ax.legend(loc="best", frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
        self.ax_ = ax
        return self
