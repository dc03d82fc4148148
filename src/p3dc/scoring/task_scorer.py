"""The one place where a scorer of tasks is made: by NumPy or on a device, in the whitened or in the plain space."""

import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Floats, row_blocks
from p3dc._validation import check_directions, check_same_width
from p3dc.adaptive.settings import Settings
from p3dc.adaptive.space import WhitenedSpace
from p3dc.priors.prototypes import Priors, as_priors, geometry_warning
from p3dc.scoring.device_memory import Device
from p3dc.scoring.numpy_scorer import NumpyScorer
from p3dc.scoring.plain_corners import PlainCorners
from p3dc.scoring.whitened_corners import WhitenedCorners
from p3dc.tasks import Tasks

WHITENED_BYTES = 2**30  # features that are whitened once; beyond it, the rows of each chunk


class TaskScorer(Protocol):
    """Scores tasks drawn from one set of features, at one or many (α, β)."""

    def correct(self, tasks: Tasks, watch: Callable[[slice, Any], None] | None = None) -> npt.NDArray[np.int64]:
        """Count the queries that each task gets right at each point, (T, G)."""

    def scores(self, tasks: Tasks) -> Floats:
        """Return the cosine of every query to every class at every point, (T, G, Q, N)."""


def task_scorer(
    features: Floats,
    priors: Priors | npt.ArrayLike | None,
    settings: Settings,
    points: npt.ArrayLike | None = None,
    device: Device | None = None,
) -> TaskScorer:
    """Make the scorer for one set of features.

    Parameters
    ----------
    features : array of shape (n_rows, D)
    priors : Priors, or prototypes of shape (B, D), optional
        Without them nothing is calibrated.
    settings : Settings
    points : array of shape (G, 2), optional
        The (α, β) to score at; those of the settings by default.
    device : Device, optional
        NumPy is used without one.
    """
    check_directions(features, "features")
    known = as_priors(priors)
    if known is not None:
        check_same_width(features, "the features", known.prototypes, "the priors")
    if points is None and settings.weights is not None:
        points = [settings.weights]
    grid: Floats | None = None if points is None else np.asarray(points, dtype=np.float64)
    if settings.whitened:
        if known is not None and known.geometry is None:
            warnings.warn(geometry_warning(known), stacklevel=2)
        space = WhitenedSpace(None if known is None else known.geometry)
        if device is not None:
            from p3dc.scoring.torch_scorer import whitened_on

            return whitened_on(device, features, space, settings, grid)
        return NumpyScorer(WhitenedCorners(features, space, settings, grid, _whitened(features, space)))
    if grid is None:
        grid = np.zeros((1, 2)) if known is None else np.array([settings.fixed_weights()])
    prototypes = None if known is None else known.prototypes
    if device is not None:
        from p3dc.scoring.torch_scorer import plain_on

        return plain_on(device, features, prototypes, settings, grid)
    return NumpyScorer(PlainCorners(features, prototypes, settings, grid))


def _whitened(features: Floats, space: WhitenedSpace) -> Floats | None:
    """Whiten all features, where they fit."""
    if 8 * features.size > WHITENED_BYTES:
        return None
    whitened = np.empty(features.shape)
    for start, block in row_blocks(features):
        whitened[start : start + len(block)] = space.whiten(block)
    return whitened
