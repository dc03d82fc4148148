"""One task's support, calibrated: with weights that are given, or with weights chosen for it."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc import auto, method
from p3dc.geometry import Geometry
from p3dc.priors import Priors, without_geometry

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Calibration:
    """A calibrated support and the way for queries to come where it is.

    Attributes
    ----------
    samples : array of shape (S, D)
        The calibrated support, normalised.
    alpha, beta, scale : float
        What it was calibrated with.
    transformed, prototypes : arrays of shape (S, D) and (B, D)
        The samples that were pulled and the base prototypes that pulled them; None where nothing did.
    geometry, centre
        How features were whitened and centred; None where they were not.
    relevance : float or None
        How well the priors fit the task, where that is known.
    alone : bool
        Whether features are normalised before all else, so that their length does not matter.
    """

    samples: Array
    alpha: float
    beta: float
    scale: float
    transformed: Array | None = None
    prototypes: Array | None = None
    geometry: Geometry | None = None
    centre: Array | None = None
    relevance: float | None = None
    alone: bool = False

    def prepare(self, queries: Array) -> Array:
        """Bring queries to where the support is."""
        if not self.alone:
            return queries
        directions: Array = method.l2_normalize(queries.astype(np.float64))
        if self.geometry is None:
            return directions
        prepared: Array = auto.prepare(self.geometry.whiten(directions), self.centre)
        return prepared


def calibrate_as_told(
    support: Array, priors: Priors | None, *, alpha: float, beta: float, n_nearest: int, power: float, scale: float
) -> Calibration:
    """Calibrate as the paper does, or only normalise where there are no priors."""
    normalised = method.l2_normalize(support)
    if priors is None:
        return Calibration(normalised, alpha, beta, scale)
    prototypes = priors.prototypes.astype(support.dtype)
    ends = method.endpoints(support, prototypes, n_nearest=n_nearest, power=power, scale=scale)
    samples = method.unify(normalised, *ends, alpha, beta)
    return Calibration(samples, alpha, beta, scale, method.tukey(support, power), prototypes)


def calibrate_alone(
    support: Array, members: Array, priors: Priors | None, *, point: tuple[float, float] | None, n_nearest: int
) -> Calibration:
    """Calibrate prepared features, with the point (α, β) that suits the task where none is given.

    Without a geometry nothing can be chosen: the support is only normalised, and a warning says why.

    Parameters
    ----------
    support : array of shape (S, D)
    members : mask of shape (S, N)
        The class of each sample.
    priors : Priors, optional
    point : (alpha, beta), optional
    n_nearest : int
    """
    directions = method.l2_normalize(support.astype(np.float64))
    if priors is None or priors.geometry is None:
        if priors is not None:
            warnings.warn(without_geometry(priors), stacklevel=5)
        return Calibration(directions, 0.0, 0.0, auto.SHARPNESS, alone=True)
    geometry, averages = priors.geometry, auto.class_averages(members)
    whitened = geometry.whiten(directions)
    centre = auto.task_centre(averages @ whitened, geometry.mean)
    prepared, prototypes = auto.prepare(whitened, centre), auto.prepare(geometry.prototypes, centre)
    ends = method.endpoints(prepared, prototypes, n_nearest=n_nearest, power=1, scale=auto.SHARPNESS)
    agreed = auto.agreement(prepared, ends[1], averages)
    if point is None:
        shots = auto.typical_shots(members)
        point = 0.0, auto.pull_weight(agreed, prepared, ends[1], shots, geometry.tightness).item()
    samples = method.unify(prepared, *ends, *point)
    return Calibration(
        samples, *point, auto.SHARPNESS, prepared, prototypes, geometry, centre, agreed.item(), alone=True
    )
